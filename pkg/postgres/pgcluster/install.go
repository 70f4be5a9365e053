//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/throughline/throughline/pkg/sysinstall"
)

// packages is Postgres in package managers.
var packages = sysinstall.Package{
	Name: "Postgres " + strconv.Itoa(MinVersion) + " or newer", Apt: "postgresql", Dnf: "postgresql-server", Apk: "postgresql", Brew: "postgresql@17",
	Home: "https://www.postgresql.org/download/; the folder of its program postgres belongs into PATH",
}

// Install installs the Postgres programs with the system's package manager (apt-get, dnf, apk as root; brew as anybody
// else), says on progress what it runs, and returns where they are. Where it may not or cannot, the error wraps
// [ErrNotFound] and says what to type.
func Install(ctx context.Context, progress io.Writer) (Binaries, error) {
	if err := packages.Install(ctx, progress); err != nil {
		return Binaries{}, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	b, err := Find(ctx, "")
	if err != nil {
		return Binaries{}, fmt.Errorf("after installing: %w", err)
	}
	return b, nil
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
