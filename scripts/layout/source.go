package layout

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Modules are the folders of the four modules.
var Modules = []string{"pkg", "proto", "services", "scripts"}

// modulePrefix is what the import paths of all four modules begin with.
const modulePrefix = "github.com/throughline/throughline/"

// File is one parsed Go file.
type File struct {
	Path      string // from the root, with slashes
	Lines     int
	Generated bool
	AST       *ast.File
	fset      *token.FileSet
}

// Load parses all Go files of the modules below root, in the order of their paths. Folders that the go command ignores
// are left out.
func Load(root fs.FS) ([]*File, error) {
	var files []*File
	for _, m := range Modules {
		err := fs.WalkDir(root, m, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if name := d.Name(); d.IsDir() && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
				return fs.SkipDir
			}
			if d.IsDir() || path.Ext(p) != ".go" {
				return nil
			}
			src, err := fs.ReadFile(root, p)
			if err != nil {
				return err
			}
			f, err := Parse(p, src)
			if err != nil {
				return err
			}
			files = append(files, f)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading the Go files of %s: %w", m, err)
		}
	}
	return files, nil
}

// Parse parses one file.
func Parse(p string, src []byte) (*File, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, p, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parsing: %w", err)
	}
	return &File{Path: p, Lines: bytes.Count(src, []byte("\n")), Generated: ast.IsGenerated(tree), AST: tree, fset: fset}, nil
}

// Test says whether the file is compiled for tests only.
func (f *File) Test() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Module is the folder of the file's module.
func (f *File) Module() string {
	m, _, _ := strings.Cut(f.Path, "/")
	return m
}

// Imports are the paths that the file imports.
func (f *File) Imports() []string {
	var paths []string
	for _, spec := range f.AST.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// at is the place of a node, as path:line.
func (f *File) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.Path, f.fset.Position(n.Pos()).Line)
}

// sibling splits an import path of ours into the module's folder and the path within it.
func sibling(importPath string) (module, rest string, ok bool) {
	p, ok := strings.CutPrefix(importPath, modulePrefix)
	if !ok {
		return "", "", false
	}
	module, rest, _ = strings.Cut(p, "/")
	return module, rest, true
}

// standard says whether an import path is one of the standard library: its first element has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
