package layout

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"unicode"
)

// maxLines and maxTestLines are how long a file may be before it is split.
const (
	maxLines     = 400
	maxTestLines = 800
)

// Size finds a file that is too long to be read in one go.
func Size(f *File) []string {
	limit := maxLines
	if f.Test() {
		limit = maxTestLines
	}
	if f.Generated || f.Lines <= limit {
		return nil
	}
	return []string{fmt.Sprintf("%s: has %d lines, more than %d: split it", f.Path, f.Lines, limit)}
}

// Init finds init functions: what they do happens unseen, in an order that nobody wrote down.
func Init(f *File) []string {
	if f.Generated {
		return nil
	}
	var problems []string
	for _, d := range f.AST.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			problems = append(problems, fmt.Sprintf("%s: has an init function: let main or a constructor do it", f.at(fn)))
		}
	}
	return problems
}

// otherWords are words for which this repository has its own. "queue" is not among them: a step table is one, and the
// broker's work-queue retention is called so; only a stream must not be, which no rule over names can tell.
var otherWords = map[string]string{
	"workflow":    "saga",
	"task":        "step, command or message",
	"worker":      "what it does: relay, sweep, consumer, runner",
	"coordinator": "orchestrator",
	"topic":       "subject or stream",
}

// Words finds declared names with a word for which this repository has its own. Names that others declared, and words in
// comments and strings, are not looked at.
func Words(f *File) []string {
	if f.Generated {
		return nil
	}
	var problems []string
	check := func(id *ast.Ident) {
		for _, w := range camelWords(id.Name) {
			if ours, ok := otherWords[strings.TrimSuffix(w, "s")]; ok {
				problems = append(problems, fmt.Sprintf("%s: the name %s says %q; here that is %s", f.at(id), id.Name, w, ours))
			}
		}
	}
	check(f.AST.Name)
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			check(n.Name)
		case *ast.TypeSpec:
			check(n.Name)
		case *ast.ValueSpec:
			for _, id := range n.Names {
				check(id)
			}
		case *ast.Field:
			for _, id := range n.Names {
				check(id)
			}
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				if id, ok := l.(*ast.Ident); ok && n.Tok == token.DEFINE {
					check(id)
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					check(id)
				}
			}
		}
		return true
	})
	return problems
}

// camelWords splits a name at its capitals and underscores, and gives the words in lower case.
func camelWords(name string) []string {
	var words []string
	var word []rune
	flush := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = nil
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case r == '_':
			flush()
			continue
		case unicode.IsUpper(r) && (i == 0 || !unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			flush()
		}
		word = append(word, r)
	}
	flush()
	return words
}

// emptyNames are package names that say nothing of what is in them.
var emptyNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base"}

// PackageName finds packages whose name says nothing.
func PackageName(f *File) []string {
	if name := path.Base(path.Dir(f.Path)); slices.Contains(emptyNames, name) {
		return []string{fmt.Sprintf("%s: a package named %s says nothing: name it after what it is for", f.Path, name)}
	}
	return nil
}

// Exit finds what ends the process in any place but main: the rest of the program would have no say.
func Exit(f *File) []string {
	if f.AST.Name.Name == "main" || f.Generated {
		return nil
	}
	var problems []string
	for c := range calls(f.AST) {
		if name := selector(c); name == "os.Exit" || strings.HasPrefix(name, "log.Fatal") || strings.HasPrefix(name, "log.Panic") {
			// TestMain and the re-executed child of a test are mains of their own.
			if !f.Test() {
				problems = append(problems, fmt.Sprintf("%s: calls %s: return an error, main decides", f.at(c), name))
			}
		}
	}
	return problems
}

// Waiting finds tests that sleep, which are slow and still fail on a busy machine. In a testing/synctest bubble time is
// not real, and a sleep is exact. Helpers are left to the reader: a proxy that delays must sleep.
func Waiting(f *File) []string {
	if !f.Test() || slices.Contains(f.Imports(), "testing/synctest") {
		return nil
	}
	var problems []string
	for _, d := range f.AST.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") {
			continue
		}
		for c := range calls(fn) {
			if selector(c) == "time.Sleep" {
				problems = append(problems, fmt.Sprintf("%s: a test sleeps: wait for a signal, or use testing/synctest", f.at(c)))
			}
		}
	}
	return problems
}

// Skipping finds tests that leave themselves out. What a test needs is installed, or its absence is a failure. A fuzz
// target may pass over an input.
func Skipping(f *File) []string {
	if !f.Test() {
		return nil
	}
	var problems []string
	for _, d := range f.AST.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || strings.HasPrefix(fn.Name.Name, "Fuzz") {
			continue
		}
		for c := range calls(fn) {
			switch selector(c) {
			case "t.Skip", "t.Skipf", "t.SkipNow", "tb.Skip", "tb.Skipf", "tb.SkipNow", "b.Skip", "b.Skipf", "b.SkipNow":
				problems = append(problems, fmt.Sprintf("%s: a test leaves itself out: install what it needs, or fail", f.at(c)))
			}
		}
	}
	return problems
}

// calls yields all calls below n.
func calls(n ast.Node) func(func(*ast.CallExpr) bool) {
	return func(yield func(*ast.CallExpr) bool) {
		more := true
		ast.Inspect(n, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok && more {
				more = yield(c)
			}
			return more
		})
	}
}

// selector is what a call of the form x.F calls, as "x.F"; of other forms it is empty.
func selector(c *ast.CallExpr) string {
	s, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := s.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return x.Name + "." + s.Sel.Name
}
