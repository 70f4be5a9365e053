//go:build unix

package pgcluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseVersion(t *testing.T) {
	t.Parallel()
	cases := []struct {
		out  string
		want int // 0: an error
	}{
		{"postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)\n", 15},
		{"postgres (PostgreSQL) 18beta1\n", 18},
		{"postgres (PostgreSQL) 9.6.24", 9},
		{"postgres (EnterpriseDB) 15.1", 0},
		{"", 0},
		{"postgres (PostgreSQL) devel", 0},
	}
	for _, c := range cases {
		got, err := parseVersion(c.out)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("parseVersion(%q): got %d, %v; want %d", c.out, got, err, c.want)
		}
	}
}

func TestVersionIn(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{
		"/usr/lib/postgresql/9.6/bin": 6, "/usr/lib/postgresql/17/bin": 17, "/opt/homebrew/opt/postgresql@16/bin": 16,
		"/usr/pgsql-15/bin": 15, "/usr/libexec/postgresql": 0,
	} {
		if got := versionIn(path); got != want {
			t.Errorf("versionIn(%q): got %d, want %d", path, got, want)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	fake := func(version string) string {
		dir := t.TempDir()
		script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
		for _, program := range []string{"postgres", "initdb"} {
			if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
				t.Fatalf("writing: %v", err)
			}
		}
		return dir
	}
	recent, old, empty := fake("16.2"), fake("14.9"), t.TempDir()
	cases := []struct {
		name, dir string
		want      Binaries
		text      string // of the error
	}{
		{"recent", recent, Binaries{Dir: recent, Major: 16}, ""},
		{"too old", old, Binaries{}, old + " has version 14"},
		{"no programs", empty, Binaries{}, "looked in " + empty},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := Find(t.Context(), c.dir)
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if c.text != "" && (!errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), c.text)) {
				t.Errorf("error: got %v, want %v with %q", err, ErrNotFound, c.text)
			}
		})
	}
}
