package command

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	inJSON := false
	cmd := describe(&cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := buildOf(debug.ReadBuildInfo())
			if inJSON {
				return printJSON(cmd.OutOrStdout(), b)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), b)
			return err
		},
	}, `{"version":TEXT,"revision":TEXT,"modified":BOOL,"go":TEXT}`, ending{0, "it was printed"})
	cmd.Flags().BoolVar(&inJSON, "json", false, "print one JSON object")
	return cmd
}

// build is what the program was built from.
type build struct {
	// Version is the module's.
	Version string `json:"version"`
	// Revision is that of the source, and Modified whether there was more than that; empty if the build does not know.
	Revision string `json:"revision"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
}

func buildOf(info *debug.BuildInfo, ok bool) build {
	if !ok {
		return build{Version: "unknown"}
	}
	b := build{Version: info.Main.Version, Go: info.GoVersion}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b build) String() string {
	parts := []string{b.Version}
	if b.Revision != "" {
		parts = append(parts, b.Revision)
	}
	if b.Go != "" {
		parts = append(parts, b.Go)
	}
	return strings.Join(parts, " ")
}
