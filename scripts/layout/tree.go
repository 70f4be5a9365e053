package layout

import (
	"errors"
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// topLevel is all that the root holds, beside files whose name begins with a dot. LICENSE and the lock files are where
// tools look for them.
var topLevel = []string{
	"services", "proto", "pkg", "deploy", "scripts", "buf.yaml", "go.work", "Makefile", "README.md", // ours
	"LICENSE", "go.work.sum", "buf.lock",
}

// TopLevel finds what does not belong at the root.
func TopLevel(root fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(root, ".")
	if err != nil {
		return nil, fmt.Errorf("reading the root: %w", err)
	}
	var problems []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(topLevel, e.Name()) {
			problems = append(problems, fmt.Sprintf("%s: does not belong at the top level: put it into the module that needs it", e.Name()))
		}
	}
	return problems, nil
}

// services says what the folder services consists of, and which files each service must and must not have.
var services = map[string]struct{ must, mustNot []string }{
	"gateway": {
		must:    []string{"gateway.go", "cmd/gateway/main.go", "internal/app", "internal/config"},
		mustNot: []string{"internal/postgres", "internal/bus"},
	},
	"console": {
		must:    []string{"console.go", "cmd/console/main.go", "internal/app", "internal/config"},
		mustNot: []string{"internal/postgres", "internal/bus"},
	},
	"order":    {must: service("order")},
	"payment":  {must: service("payment")},
	"shipping": {must: service("shipping")},
	// The simulators stand for other people's systems and share no shape with ours.
	"simulator": {must: []string{"payment", "carrier"}},
	// All services in one process, and the command line.
	"throughline": {must: []string{"cmd/throughline/main.go"}},
	// What services share and the library must not know.
	"internal": {},
}

func service(name string) []string {
	return []string{
		name + ".go", "cmd/" + name + "/main.go", "internal/app", "internal/config", "internal/" + name,
		"internal/grpcapi", "internal/bus", "internal/postgres",
	}
}

// Services finds services that are missing or unknown, and files that a service lacks or should not have.
func Services(root fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(root, "services")
	if err != nil {
		return nil, fmt.Errorf("reading the services: %w", err)
	}
	var problems []string
	present := map[string]bool{}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		present[e.Name()] = true
		if _, ok := services[e.Name()]; !ok {
			problems = append(problems, fmt.Sprintf("services/%s: is not a known service: say in scripts/layout what it must consist of", e.Name()))
		}
	}
	for name, s := range services {
		if !present[name] {
			problems = append(problems, fmt.Sprintf("services/%s: is missing", name))
			continue
		}
		for _, p := range s.must {
			if !exists(root, path.Join("services", name, p)) {
				problems = append(problems, fmt.Sprintf("services/%s: has no %s: every service has the same files", name, p))
			}
		}
		for _, p := range s.mustNot {
			if exists(root, path.Join("services", name, p)) {
				problems = append(problems, fmt.Sprintf("services/%s: may not have %s", name, p))
			}
		}
	}
	slices.Sort(problems)
	return problems, nil
}

func exists(root fs.FS, p string) bool {
	_, err := fs.Stat(root, p)
	return !errors.Is(err, fs.ErrNotExist)
}

// maxMainLines is how long a service's main.go may be: it calls run and exits, nothing else.
const maxMainLines = 30

// Mains finds mains of services that do more than start it.
func Mains(f *File) []string {
	if f.Module() != "services" || path.Base(f.Path) != "main.go" || f.Lines < maxMainLines {
		return nil
	}
	return []string{fmt.Sprintf("%s: has %d lines, want fewer than %d: move what it does into internal/app", f.Path, f.Lines, maxMainLines)}
}

// Library finds packages of pkg without their contract in doc.go, and those at its top without a runnable example.
// Commands and internal packages have no readers outside.
func Library(files []*File) []string {
	type pkg struct{ code, doc, example bool }
	packages := map[string]*pkg{}
	for _, f := range files {
		dir := path.Dir(f.Path)
		if f.Module() != "pkg" || f.AST.Name.Name == "main" || slices.Contains(strings.Split(dir, "/"), "internal") {
			continue
		}
		p := packages[dir]
		if p == nil {
			p = &pkg{}
			packages[dir] = p
		}
		p.code = p.code || !f.Test()
		p.doc = p.doc || path.Base(f.Path) == "doc.go" && f.AST.Doc != nil
		p.example = p.example || hasExample(f)
	}
	var problems []string
	for dir, p := range packages {
		if p.code && !p.doc {
			problems = append(problems, fmt.Sprintf("%s: has no doc.go with a package comment: what it promises, what it does not, what it must not import", dir))
		}
		if p.code && !p.example && strings.Count(dir, "/") == 1 {
			problems = append(problems, fmt.Sprintf("%s: has no example with checked output", dir))
		}
	}
	slices.Sort(problems)
	return problems
}

// hasExample says whether a test file holds an example whose output is checked; others are compiled, but never run.
func hasExample(f *File) bool {
	if !f.Test() {
		return false
	}
	for _, d := range f.AST.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(fn.Name.Name, "Example") {
			continue
		}
		for _, c := range f.AST.Comments {
			text := strings.ToLower(c.Text())
			inside := c.Pos() > fn.Body.Pos() && c.End() < fn.Body.End()
			if inside && (strings.HasPrefix(text, "output:") || strings.HasPrefix(text, "unordered output:")) {
				return true
			}
		}
	}
	return false
}
