package sysinstall_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/throughline/throughline/pkg/sysinstall"
)

var browser = sysinstall.Package{Name: "Chromium", Apt: "chromium", Brew: "chromium", Cask: true, Home: "https://www.chromium.org"}

func ExamplePackage_Typed() {
	p := sysinstall.Package{Name: "Chromium", Apt: "chromium", Brew: "chromium", Cask: true, Home: "https://www.chromium.org"}
	for _, manager := range []string{"apt-get", "dnf", "brew"} {
		typed, ok := p.Typed(manager)
		fmt.Printf("%t %q\n", ok, typed)
	}
	// Output:
	// true "sudo apt-get update && sudo apt-get install -y --no-install-recommends chromium"
	// false ""
	// true "brew install --cask chromium"
}

// path puts a folder with programs of our own in the place of PATH. Each notes how it was called, and ends with a status.
func path(t *testing.T, status int, programs ...string) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	for _, p := range programs {
		script := fmt.Sprintf("#!/bin/sh\necho \"%s $*\" >> %s/calls\necho it says why\nexit %d\n", p, dir, status)
		if err := os.WriteFile(filepath.Join(dir, p), []byte(script), 0o755); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	return func() string {
		text, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(text)
	}
}

// What a package manager is asked to do, and what is said where it is not asked.
func TestInstall(t *testing.T) { //nolint:paralleltest // PATH is of the whole process
	root, other, typed := "apt-get", "brew", "brew install --cask chromium"
	want := "apt-get update\napt-get install -y --no-install-recommends chromium\n"
	if os.Geteuid() != 0 {
		root, other, typed, want = "brew", "apt-get", "apt-get install -y --no-install-recommends chromium", "brew install --cask chromium\n"
	}
	t.Run("allowed", func(t *testing.T) {
		calls := path(t, 0, "dnf", root) // dnf does not have it
		var progress bytes.Buffer
		if err := browser.Install(t.Context(), &progress); err != nil || calls() != want {
			t.Errorf("got %q, %v, want %q", calls(), err, want)
		}
		if !strings.Contains(progress.String(), "installing Chromium: "+root) {
			t.Errorf("progress: got %q, want what is run", &progress)
		}
	})
	t.Run("not allowed", func(t *testing.T) {
		calls := path(t, 0, other)
		err := browser.Install(t.Context(), nil)
		if !errors.Is(err, sysinstall.ErrNotInstalled) || !strings.Contains(err.Error(), typed) || calls() != "" {
			t.Errorf("got %v after %q, want nothing run and what to type", err, calls())
		}
	})
	t.Run("it fails", func(t *testing.T) {
		path(t, 3, root)
		err := browser.Install(t.Context(), nil)
		if !errors.Is(err, sysinstall.ErrNotInstalled) || !strings.Contains(err.Error(), "it says why") || !strings.Contains(err.Error(), "by hand, type: ") {
			t.Errorf("got %v, want what it said and what to type", err)
		}
	})
	t.Run("no manager", func(t *testing.T) {
		path(t, 0)
		if err := browser.Install(t.Context(), nil); !errors.Is(err, sysinstall.ErrNotInstalled) || !strings.Contains(err.Error(), browser.Home) {
			t.Errorf("got %v, want where to find it", err)
		}
	})
}
