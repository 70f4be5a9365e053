package deploycheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestEveryServiceCanBeBuilt checks that the build argument of each service names one program.
func TestEveryServiceCanBeBuilt(t *testing.T) {
	t.Parallel()
	mains := map[string][]string{}
	err := fs.WalkDir(os.DirFS("../../services"), ".", func(path string, _ fs.DirEntry, err error) error {
		if e := strings.Split(path, "/"); len(e) > 3 && e[len(e)-3] == "cmd" && e[len(e)-1] == "main.go" {
			mains[e[len(e)-2]] = append(mains[e[len(e)-2]], path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range ours {
		if len(mains[name]) != 1 {
			t.Errorf("cmd/%s/main.go: got %q, want one", name, mains[name])
		}
	}
}

// TestSettingsExist checks that each setting in compose.yaml is one that the service reads: a service refuses to start on
// one with our prefix that it does not know.
func TestSettingsExist(t *testing.T) {
	t.Parallel()
	p := project(t)
	for _, name := range []string{"console", "gateway", "order", "payment", "shipping"} {
		known := settings(t, "../../services/"+name, "../../services/internal", "../../pkg/telemetry")
		for key := range p.Services[name].Environment {
			if !known[key] {
				t.Errorf("%s: reads no setting %s", name, key)
			}
		}
	}
}

// settings are the names that the env tags of all structs below some folders declare: with our prefix, unless the tag
// prefix:"none" stands beside.
func settings(t *testing.T, dirs ...string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if field, ok := n.(*ast.Field); ok && field.Tag != nil {
					tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
					if name, _, _ := strings.Cut(tag.Get("env"), ","); name != "" {
						if tag.Get("prefix") != "none" {
							name = "THROUGHLINE_" + name
						}
						names[name] = true
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Errorf("reading the settings of %s: %v", dir, err)
		}
	}
	return names
}
