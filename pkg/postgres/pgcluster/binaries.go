//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// MinVersion is the lowest major version of Postgres that this module supports. Version 15 is the first where only
// the owner of a database may create tables in its public schema, which each service having its own role relies on.
const MinVersion = 15

// Binaries names the folder that holds the Postgres programs, and their version.
type Binaries struct {
	Dir   string // holds postgres and initdb
	Major int    // such as 15
}

func (b Binaries) path(program string) string { return filepath.Join(b.Dir, program) }

// Find looks for Postgres programs of at least [MinVersion]. With a dir it looks there only; else in PATH, in
// /usr/lib/postgresql (highest version first) and where Homebrew and common packages put them. The error wraps
// [ErrNotFound] and names what was found and was too old.
func Find(ctx context.Context, dir string) (Binaries, error) {
	candidates := []string{dir}
	if dir == "" {
		candidates = searchPath()
	}
	var rejected []string
	for _, c := range candidates {
		b, err := inspect(ctx, c)
		switch {
		case err == nil:
			return b, nil
		case !errors.Is(err, os.ErrNotExist):
			rejected = append(rejected, err.Error())
		}
	}
	if ctx.Err() != nil {
		return Binaries{}, fmt.Errorf("looking for Postgres programs: %w", ctx.Err())
	}
	detail := "version " + strconv.Itoa(MinVersion) + " or newer is needed"
	if dir != "" {
		detail += "; looked in " + dir
	}
	if len(rejected) > 0 {
		detail += "; not usable: " + strings.Join(rejected, "; ")
	}
	return Binaries{}, fmt.Errorf("%w: %s", ErrNotFound, detail)
}

// searchPath lists the folders where Postgres programs may be, best first.
func searchPath() []string {
	var dirs []string
	if p, err := exec.LookPath("postgres"); err == nil {
		// initdb finds its share files relative to the real program, so a link into PATH is followed.
		if real, err := filepath.EvalSymlinks(p); err == nil {
			p = real
		}
		dirs = append(dirs, filepath.Dir(p))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
		"/usr/pgsql-*/bin",                  // packages of the Postgres project for Fedora and RHEL
		"/usr/libexec/postgresql*",          // Alpine
		"/opt/homebrew/opt/postgresql*/bin", // Homebrew on Apple silicon
		"/usr/local/opt/postgresql*/bin",    // Homebrew on Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/local/pgsql/bin", // built from source
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			continue // only a malformed pattern gives an error, and these are constant
		}
		slices.SortFunc(found, func(a, b string) int { return versionIn(b) - versionIn(a) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// versionIn returns the last number in a folder's path, for sorting: 17 for /usr/lib/postgresql/17/bin.
func versionIn(path string) int {
	end := strings.LastIndexAny(path, "0123456789")
	if end < 0 {
		return 0
	}
	start := end
	for start > 0 && path[start-1] >= '0' && path[start-1] <= '9' {
		start--
	}
	n, err := strconv.Atoi(path[start : end+1])
	if err != nil {
		return 0
	}
	return n
}

// inspect asks the programs in dir for their version. It reports [os.ErrNotExist] when dir has none.
func inspect(ctx context.Context, dir string) (Binaries, error) {
	for _, program := range []string{"postgres", "initdb"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return Binaries{}, fmt.Errorf("looking for %s: %w", program, err)
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("asking %s/postgres for its version: %w", dir, err)
	}
	major, err := parseVersion(string(out))
	if err != nil {
		return Binaries{}, fmt.Errorf("asking %s/postgres for its version: %w", dir, err)
	}
	if major < MinVersion {
		return Binaries{}, fmt.Errorf("%s has version %d", dir, major)
	}
	return Binaries{Dir: dir, Major: major}, nil
}

// parseVersion reads the major version out of "postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)", "… 18beta1".
func parseVersion(out string) (int, error) {
	_, rest, found := strings.Cut(out, "(PostgreSQL) ")
	if !found {
		return 0, fmt.Errorf("unexpected answer %q", strings.TrimSpace(out))
	}
	digits := rest
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		digits = rest[:i]
	}
	major, err := strconv.Atoi(digits)
	if err != nil {
		return 0, fmt.Errorf("unexpected answer %q", strings.TrimSpace(out))
	}
	return major, nil
}
