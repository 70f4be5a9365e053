// Package settings reads a simulator's flags and environment. Every flag
// --some-name can be given as PREFIX_SOME_NAME; the flag wins.
package settings

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Parse fills the flags that bind declares, first from env (lines of the form
// NAME=value), then from args. An environment variable with the prefix that
// belongs to no flag is an error, since it is a typing mistake. A request for help returns
// flag.ErrHelp after the usage has been written to usage.
func Parse(prefix string, args, env []string, usage io.Writer, bind func(*flag.FlagSet)) error {
	fs := flag.NewFlagSet(strings.ToLower(strings.ReplaceAll(prefix, "_", "-")), flag.ContinueOnError)
	fs.SetOutput(usage)
	bind(fs)
	names := map[string]string{}
	fs.VisitAll(func(f *flag.Flag) {
		names[prefix+"_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))] = f.Name
	})
	for _, line := range slices.Sorted(slices.Values(env)) {
		key, value, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(key, prefix+"_") {
			continue
		}
		name, ok := names[key]
		if !ok {
			return fmt.Errorf("unknown setting %s in the environment", key)
		}
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("reading %s: %w", key, err)
		}
	}
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("reading flags: %w", err)
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return nil
}
