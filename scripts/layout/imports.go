package layout

import (
	"fmt"
	"slices"
	"strings"
)

// mayImport says which modules of ours each module may import. The library and the contracts are for outsiders, who get
// them alone.
var mayImport = map[string][]string{
	"pkg":      {"pkg"},
	"proto":    {"proto"},
	"services": {"services", "pkg", "proto"},
	"scripts":  {"scripts", "services", "pkg", "proto"},
}

// ModuleImports finds imports of a module that the file's own may not import. It holds for tests too: they are in the
// same module.
func ModuleImports(f *File) []string {
	var problems []string
	for _, p := range f.Imports() {
		if m, _, ok := sibling(p); ok && !slices.Contains(mayImport[f.Module()], m) {
			problems = append(problems, fmt.Sprintf("%s: %s may not import %s, only %s",
				f.Path, f.Module(), p, strings.Join(mayImport[f.Module()], ", ")))
		}
	}
	return problems
}

// domainImports are what a domain package may import beside the standard library.
var domainImports = []string{"github.com/google/uuid", modulePrefix + "pkg/money"}

// DomainImports finds imports that a domain package, services/X/internal/X, may not have: its types and rules know
// nothing of the wire, the database or the broker. Its tests may import more.
func DomainImports(f *File) []string {
	e := strings.Split(f.Path, "/")
	if len(e) != 5 || e[0] != "services" || e[2] != "internal" || e[1] != e[3] || f.Test() {
		return nil
	}
	var problems []string
	for _, p := range f.Imports() {
		if !standard(p) && !slices.Contains(domainImports, p) {
			problems = append(problems, fmt.Sprintf("%s: a domain package may not import %s, only the standard library, %s",
				f.Path, p, strings.Join(domainImports, ", ")))
		}
	}
	return problems
}

// ServiceImports finds one service that imports another's code. Services meet over the wire; only the program that runs
// them all in one process, and tests, see more than one.
func ServiceImports(f *File) []string {
	own := serviceOf(strings.TrimPrefix(f.Path, "services/"))
	if f.Module() != "services" || own == "throughline" || f.Test() {
		return nil
	}
	var problems []string
	for _, p := range f.Imports() {
		m, rest, ok := sibling(p)
		if other := serviceOf(rest); ok && m == "services" && other != own && other != "internal" {
			problems = append(problems, fmt.Sprintf("%s: %s may not import %s: services meet over the wire, "+
				"and what they share is in services/internal", f.Path, own, p))
		}
	}
	return problems
}

// serviceOf is the service that a path within the module services belongs to, or "internal" for what they share. Each
// simulator counts as a service; the rest of the folder simulator is what those two and their users share.
func serviceOf(p string) string {
	e := strings.Split(p, "/")
	if e[0] != "simulator" || len(e) == 1 {
		return e[0]
	}
	if e[1] == "payment" || e[1] == "carrier" {
		return "simulator/" + e[1]
	}
	return "internal"
}

// databaseImports reach a database, directly or through the library.
var databaseImports = []string{
	"github.com/jackc/pgx/", "database/sql", modulePrefix + "pkg/postgres", modulePrefix + "pkg/outbox",
	modulePrefix + "pkg/inbox", modulePrefix + "pkg/saga", modulePrefix + "pkg/participant",
}

// StatelessImports finds a database in the gateway and the console, which have none: it must be possible to throw one away at any moment.
func StatelessImports(f *File) []string {
	own := serviceOf(strings.TrimPrefix(f.Path, "services/"))
	if f.Module() != "services" || own != "gateway" && own != "console" || f.Test() {
		return nil
	}
	var problems []string
	for _, p := range f.Imports() {
		for _, d := range databaseImports {
			if p == strings.TrimSuffix(d, "/") || strings.HasPrefix(p, strings.TrimSuffix(d, "/")+"/") {
				problems = append(problems, fmt.Sprintf("%s: the %s has no database and may not import %s", f.Path, own, p))
			}
		}
	}
	return problems
}
