//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// packageManager is one way to get the Postgres programs onto the machine.
type packageManager struct {
	program   string     // looked up in PATH
	needsRoot bool       // without root it is only suggested; with root, one that must not run as root is only suggested
	steps     [][]string // run in order
	typed     string     // what a person would type
}

var packageManagers = []packageManager{
	{
		program: "apt-get", needsRoot: true,
		steps: [][]string{
			{"apt-get", "update"},
			{"apt-get", "install", "-y", "--no-install-recommends", "postgresql"},
		},
		typed: "sudo apt-get update && sudo apt-get install -y --no-install-recommends postgresql",
	},
	{
		program: "dnf", needsRoot: true,
		steps: [][]string{{"dnf", "install", "-y", "postgresql-server"}},
		typed: "sudo dnf install -y postgresql-server",
	},
	{
		program: "apk", needsRoot: true,
		steps: [][]string{{"apk", "add", "--no-cache", "postgresql"}},
		typed: "sudo apk add postgresql",
	},
	{
		program: "brew",
		steps:   [][]string{{"brew", "install", "postgresql@17"}},
		typed:   "brew install postgresql@17",
	},
}

// Install installs the Postgres programs with the system's package manager (apt-get, dnf, apk as root; brew as anybody
// else), says on progress what it runs, and returns where they are. Where it may not or cannot, the error wraps
// [ErrNotFound] and says what to type.
func Install(ctx context.Context, progress io.Writer) (Binaries, error) {
	root := os.Geteuid() == 0
	for _, pm := range packageManagers {
		if _, err := exec.LookPath(pm.program); err != nil {
			continue
		}
		if root != pm.needsRoot {
			return Binaries{}, fmt.Errorf("%w: version %d or newer is needed; to install it, type: %s", ErrNotFound, MinVersion, pm.typed)
		}
		if err := pm.run(ctx, progress); err != nil {
			return Binaries{}, err
		}
		b, err := Find(ctx, "")
		if err != nil {
			return Binaries{}, fmt.Errorf("after installing with %s: %w", pm.program, err)
		}
		return b, nil
	}
	return Binaries{}, fmt.Errorf("%w: install Postgres %d or newer and put the folder of its program postgres into PATH "+
		"(https://www.postgresql.org/download/)", ErrNotFound, MinVersion)
}

func (pm packageManager) run(ctx context.Context, progress io.Writer) error {
	for _, step := range pm.steps {
		say(progress, "installing Postgres: %s", strings.Join(step, " "))
		cmd := exec.CommandContext(ctx, step[0], step[1:]...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "HOMEBREW_NO_AUTO_UPDATE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %q failed: %w\n%s\nto install it by hand, type: %s",
				ErrNotFound, strings.Join(step, " "), err, tail(string(out), 10), pm.typed)
		}
	}
	return nil
}

// findOrInstall is Find, and Install where nothing is found and install is set.
func findOrInstall(ctx context.Context, dir string, install bool, progress io.Writer) (Binaries, error) {
	b, err := Find(ctx, dir)
	if err == nil || !errors.Is(err, ErrNotFound) || dir != "" || !install {
		return b, err
	}
	return Install(ctx, progress)
}

// say writes one line of progress. A writer that fails must not keep a cluster from starting.
func say(w io.Writer, format string, args ...any) {
	if w != nil {
		_, _ = fmt.Fprintf(w, format+"\n", args...)
	}
}

// tail returns the last n lines of s.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
