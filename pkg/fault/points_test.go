package fault_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/throughline/throughline/pkg/fault"
)

func TestPoints(t *testing.T) {
	t.Parallel()
	points := fault.Points()
	form := regexp.MustCompile(`^[a-z]+\.[a-z_]+$`) // none of the characters of THROUGHLINE_FAULT_POINTS
	for i, p := range points {
		if !form.MatchString(p) {
			t.Errorf("got point %q, want the form %v", p, form)
		}
		if i > 0 && points[i-1] >= p {
			t.Errorf("got %q before %q, want sorted and each once", points[i-1], p)
		}
	}
	// A constant that Points leaves out could never be armed.
	for constant, name := range declared(t) {
		if !slices.Contains(points, name) {
			t.Errorf("%s = %q is declared but not among Points()", constant, name)
		}
	}
}

// declared gives the points by the names of their constants.
func declared(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "points.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := make(map[string]string)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Names[0].Name != "EnvVar" && spec.Names[0].IsExported() {
			constants[spec.Names[0].Name] = literal(spec.Values[0])
		}
		return true
	})
	return constants
}

// TestPointsInSources finds passages with names that were never declared: they
// would compile and could never be reached by a test. And it finds points that
// nothing passes.
func TestPointsInSources(t *testing.T) {
	t.Parallel()
	points, constants := fault.Points(), declared(t)
	passed := make(map[string]bool)
	checked, services := 0, false
	for _, root := range []string{"..", "../../services"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				if path == root {
					return fs.SkipDir // as a dependency of others the module stands alone
				}
				return err
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") {
				return nil
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil //nolint:nilerr // the compiler says it better
			}
			checked++
			services = services || root != ".."
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				fn, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || fn.Sel.Name != "Point" && fn.Sel.Name != "At" {
					return true
				}
				if pkg, ok := fn.X.(*ast.Ident); !ok || pkg.Name != "fault" {
					return true
				}
				if constant, ok := call.Args[0].(*ast.SelectorExpr); ok && !strings.HasSuffix(path, "_test.go") {
					passed[constant.Sel.Name] = true
				}
				if name := literal(call.Args[0]); name != "" && !slices.Contains(points, name) {
					t.Errorf("%s: point %q is not declared in points.go", fset.Position(call.Pos()), name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatalf("reading the sources: %v", err)
		}
	}
	for constant, name := range constants {
		// The library alone does not pass them all.
		if services && !passed[constant] {
			t.Errorf("point %q is declared, and nothing passes it", name)
		}
	}
	if checked < 5 {
		t.Errorf("got %d source files, want at least this package's", checked)
	}
}

func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return s
}
