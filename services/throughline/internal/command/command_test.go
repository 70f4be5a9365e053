package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// runnable gives all commands that do something.
func runnable(cmd *cobra.Command) []*cobra.Command {
	var found []*cobra.Command
	for _, sub := range cmd.Commands() {
		if sub.Runnable() && sub.Name() != "help" {
			found = append(found, sub)
		}
		found = append(found, runnable(sub)...)
	}
	return found
}

// run gives what a command line prints without a system.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot([]string{"THROUGHLINE_OPERATOR_CREDENTIAL=none"}, &out, &out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestEveryCommandSaysWhatScriptsNeed: the help of each lists the codes that it ends with and its lines of JSON, and so does the documentation.
func TestEveryCommandSaysWhatScriptsNeed(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := runnable(newRoot(nil, io.Discard, io.Discard))
	if len(commands) < 20 {
		t.Errorf("commands: got %d, want all", len(commands))
	}
	for _, cmd := range commands {
		path := strings.TrimPrefix(cmd.CommandPath(), "throughline ")
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			help, err := run(t, append(strings.Fields(path), "--help")...)
			if err != nil {
				t.Fatal(err)
			}
			_, endings, found := strings.Cut(help, "\nEnds with\n")
			if !found || !strings.HasPrefix(endings, "  0  ") || !strings.Contains(endings, "\n  1  anything else\n") {
				t.Errorf("help: got\n%s\nwant it to list the codes that it ends with, from 0 to 1 for anything else", help)
			}
			silent := strings.HasPrefix(path, "completion") || path == "service" // a script for a shell; logs
			if got := cmd.Flag("json") != nil || cmd.InheritedFlags().Lookup("json") != nil; got == silent {
				t.Errorf("--json: got %t, want %t", got, !silent)
			}
			if got := strings.Contains(help, "\nWith --json it prints one object a line:\n  "); got == silent {
				t.Errorf("help: got\n%s\nwant it to say what --json prints: %t", help, !silent)
			}
			if name, _, _ := strings.Cut(path, " bash"); !strings.HasPrefix(path, "completion") && !strings.Contains(string(doc), "`"+name+"`") {
				t.Errorf("services/README.md: it has no `%s`", name)
			}
		})
	}
}

// TestCompletion: what a shell offers that asks without a system.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"dead-letters list --service ":               {"order", "payment", "shipping"},
		"dead-letters list --service payment,":       {"payment,order", "payment,shipping"},
		"outbox republish --stream ":                 {"CMD", "RPL", "EVT"},
		"dead-letters replay --consumer ":            {"order-replies", "payment-commands", "shipping-commands"},
		"clients add shop --scopes ":                 {"orders:read", "orders:write"},
		"clients rotate shop --scopes orders:read,":  {"orders:read,orders:write"},
		"up --log-level ":                            {"debug", "info", "warn", "error"},
		"service ":                                   {"shipping", "payment", "order", "gateway", "console"},
		"dead-letters ":                              {"discard", "list", "replay", "show"},
		"attention retry x --reason ":                nil,
		"place --note ":                              nil,
		"version ":                                   nil,
		"doctor --order ":                            nil,
		"trace ":                                     nil,
		"attention show an-order ":                   nil,
		"clients revoke a-client a-key ":             nil,
		"completion ":                                {"bash", "fish", "powershell", "zsh"},
		"dead-letters replay --service order,bogus,": {"order,bogus,payment", "order,bogus,shipping"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			args := strings.Split(line, " ")
			out, err := run(t, append([]string{cobra.ShellCompNoDescRequestCmd}, args...)...)
			if err != nil {
				t.Fatal(err)
			}
			offers, rest, found := strings.Cut(out, ":")
			for strings.HasPrefix(rest, "read") || strings.HasPrefix(rest, "write") { // a colon of a scope
				var more string
				more, rest, found = strings.Cut(rest, "\n:")
				offers += ":" + more
			}
			if got := strings.Fields(offers); !slices.Equal(got, want) {
				t.Errorf("offers: got %q, want %q", got, want)
			}
			if !found || !strings.HasPrefix(rest, fmt.Sprintf("%d\n", cobra.ShellCompDirectiveNoFileComp)) {
				t.Errorf("directive: got %q, want no files", rest)
			}
		})
	}
	for line, want := range map[string]cobra.ShellCompDirective{
		"doctor --data ": cobra.ShellCompDirectiveFilterDirs, "up --data ": cobra.ShellCompDirectiveFilterDirs,
		"place --file ": cobra.ShellCompDirectiveFilterFileExt,
	} {
		out, err := run(t, append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(line, " ")...)...)
		if err != nil || !strings.Contains(out, fmt.Sprintf(":%d\n", want)) {
			t.Errorf("%s: got %q, %v, want directive %d", line, out, err, want)
		}
	}
}

// TestCompletionScripts: each shell gets a script that asks the program, and bash can read its own.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := run(t, "completion", shell)
		if err != nil || !strings.Contains(script, cobra.ShellCompRequestCmd) || !strings.Contains(script, "throughline") {
			t.Errorf("%s: got %d bytes, %v, want a script that asks throughline", shell, len(script), err)
		}
		if shell != "bash" {
			continue
		}
		check := exec.CommandContext(t.Context(), "bash", "-n")
		check.Stdin = strings.NewReader(script)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("bash -n: %v\n%s", err, out)
		}
	}
}

// TestCodes: what services say, and what the program ends with.
func TestCodes(t *testing.T) {
	t.Parallel()
	said := func(c codes.Code) error { return explainCall("there", status.Error(c, "so")) }
	var (
		silent = said(codes.Unavailable)
		absent = said(codes.NotFound)
		no     = said(codes.FailedPrecondition)
		ours   = errors.New("no space left on device")
	)
	for name, tt := range map[string]struct {
		errs []error
		want int
	}{
		"all answer":                     {[]error{nil, nil, nil}, 0},
		"one of three is silent":         {[]error{nil, silent, nil}, ExitIncomplete},
		"the only one is silent":         {[]error{silent}, ExitFailed},
		"all are silent":                 {[]error{silent, silent}, ExitFailed},
		"too late":                       {[]error{said(codes.DeadlineExceeded), nil}, ExitIncomplete},
		"nothing of that name":           {[]error{absent}, ExitNotFound},
		"a no":                           {[]error{no}, ExitRefused},
		"a no, and silence":              {[]error{nil, silent, no}, ExitRefused},
		"a wrong credential":             {[]error{said(codes.Unauthenticated), nil}, ExitRefused},
		"a fault of this program's":      {[]error{nil, ours}, ExitFailed},
		"a conflict that may go away":    {[]error{said(codes.Aborted)}, ExitFailed},
		"wrapped on the way":             {[]error{fmt.Errorf("order: %w", absent)}, ExitNotFound},
		"silent, and wrapped on the way": {[]error{fmt.Errorf("order: %w", silent), nil}, ExitIncomplete},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := allOf(tt.errs)
			if got := ExitCode(err); got != tt.want {
				t.Errorf("code: got %d for %v, want %d", got, err, tt.want)
			}
			for _, e := range tt.errs {
				if e != nil && !errors.Is(err, e) {
					t.Errorf("error: got %v, want it to keep %v", err, e)
				}
			}
		})
	}
}

// TestVersion prints the same for people and for programs.
func TestVersion(t *testing.T) {
	t.Parallel()
	inJSON, err := run(t, "version", "--json")
	if err != nil || !strings.HasPrefix(inJSON, `{"version":"`) || !strings.Contains(inJSON, `"go":"go1.`) || strings.Count(inJSON, "\n") != 1 {
		t.Errorf("version --json: got %q, %v, want one object on one line", inJSON, err)
	}
	plain, err := run(t, "version")
	if err != nil || !strings.Contains(plain, "go1.") || strings.Contains(plain, "{") {
		t.Errorf("version: got %q, %v, want a line for people", plain, err)
	}
}
