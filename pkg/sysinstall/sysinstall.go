package sysinstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// ErrNotInstalled says that nothing was installed. The error that wraps it says what to type.
var ErrNotInstalled = errors.New("not installed")

// Package is a program under its names in package managers. An empty name means that a manager does not have it.
type Package struct {
	// Name is for people, such as "Postgres 15 or newer".
	Name string
	Apt  string
	Dnf  string
	Apk  string
	Brew string
	// Cask tells that Homebrew has it as a cask.
	Cask bool
	// Home is where people find it by hand.
	Home string
}

// manager is one way to get a package onto the machine.
type manager struct {
	program   string // looked up in PATH
	needsRoot bool   // without root it is only suggested; with root, one that must not run as root is only suggested
	name      func(Package) string
	steps     func(name string) [][]string // run in order
	typed     string                       // what a person would type, with the package's name at %s
}

func managers() []manager {
	return []manager{
		{
			program: "apt-get", needsRoot: true, name: func(p Package) string { return p.Apt },
			steps: func(name string) [][]string {
				return [][]string{{"apt-get", "update"}, {"apt-get", "install", "-y", "--no-install-recommends", name}}
			},
			typed: "sudo apt-get update && sudo apt-get install -y --no-install-recommends %s",
		},
		{
			program: "dnf", needsRoot: true, name: func(p Package) string { return p.Dnf },
			steps: func(name string) [][]string { return [][]string{{"dnf", "install", "-y", name}} },
			typed: "sudo dnf install -y %s",
		},
		{
			program: "apk", needsRoot: true, name: func(p Package) string { return p.Apk },
			steps: func(name string) [][]string { return [][]string{{"apk", "add", "--no-cache", name}} },
			typed: "sudo apk add %s",
		},
		{
			program: "brew", name: func(p Package) string {
				if p.Cask && p.Brew != "" {
					return "--cask " + p.Brew
				}
				return p.Brew
			},
			steps: func(name string) [][]string {
				return [][]string{append([]string{"brew", "install"}, strings.Fields(name)...)}
			},
			typed: "brew install %s",
		},
	}
}

// Typed gives what a person would type to install the package with a manager ("apt-get", "dnf", "apk" or "brew"); false if that manager is
// not known here, or does not have the package.
func (p Package) Typed(managerName string) (string, bool) {
	for _, m := range managers() {
		if m.program == managerName && m.name(p) != "" {
			return fmt.Sprintf(m.typed, m.name(p)), true
		}
	}
	return "", false
}

// Install installs the package with the first package manager that is there, and says on progress what it runs; progress may be nil. The
// error wraps [ErrNotInstalled] and says what to type.
func (p Package) Install(ctx context.Context, progress io.Writer) error {
	root := os.Geteuid() == 0
	for _, m := range managers() {
		name := m.name(p)
		if name == "" {
			continue
		}
		if _, err := exec.LookPath(m.program); err != nil {
			continue
		}
		typed := fmt.Sprintf(m.typed, name)
		if root != m.needsRoot {
			return fmt.Errorf("%w: %s is needed; to install it, type: %s", ErrNotInstalled, p.Name, typed)
		}
		for _, step := range m.steps(name) {
			if err := p.run(ctx, progress, step, typed); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("%w: install %s (%s)", ErrNotInstalled, p.Name, p.Home)
}

func (p Package) run(ctx context.Context, progress io.Writer, step []string, typed string) error {
	if progress != nil {
		// A writer that fails must not keep anything from being installed.
		_, _ = fmt.Fprintf(progress, "installing %s: %s\n", p.Name, strings.Join(step, " "))
	}
	cmd := exec.CommandContext(ctx, step[0], step[1:]...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "HOMEBREW_NO_AUTO_UPDATE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %q failed: %w\n%s\nto install it by hand, type: %s",
			ErrNotInstalled, strings.Join(step, " "), err, tail(string(out), 10), typed)
	}
	return nil
}

// tail gives the last n lines of s.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
