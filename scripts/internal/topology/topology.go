// Package topology reads the names of subjects and streams from the source of the services' own package topology, which is
// internal to them and cannot be imported from here. It evaluates the constants, and nothing else of that file.
package topology

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/throughline/throughline/pkg/messaging"
)

// File is where the constants are, from the root of the repository.
const File = "services/internal/topology/topology.go"

// Events is what the constants say of events.
type Events struct {
	// Stream is the name of the stream that holds them.
	Stream string
	// MaxAge is how long they stay in it.
	MaxAge time.Duration
	// Subjects are all of them, sorted.
	Subjects []string
}

// ReadEvents reads the file at path. A constant that is needed and missing, or that cannot be evaluated, is an error.
func ReadEvents(path string) (Events, error) {
	values, err := evaluate(path)
	if err != nil {
		return Events{}, fmt.Errorf("reading the constants of %s: %w", path, err)
	}
	var e Events
	for name, v := range values {
		if v.Kind() == constant.String && strings.HasPrefix(constant.StringVal(v), messaging.EventPrefix) {
			e.Subjects = append(e.Subjects, constant.StringVal(v))
		}
		if v.Kind() == constant.Unknown {
			return Events{}, fmt.Errorf("reading the constants of %s: %s cannot be evaluated", path, name)
		}
	}
	slices.Sort(e.Subjects)
	stream, age := values["Events"], values["EventAge"]
	if stream == nil || age == nil || len(e.Subjects) == 0 {
		return Events{}, fmt.Errorf("reading the constants of %s: Events, EventAge or every subject is missing; there are %v",
			path, slices.Sorted(maps.Keys(values)))
	}
	e.Stream = constant.StringVal(stream)
	nanoseconds, exact := constant.Int64Val(age)
	if !exact {
		return Events{}, fmt.Errorf("reading the constants of %s: EventAge is %s, not a duration", path, age)
	}
	e.MaxAge = time.Duration(nanoseconds)
	return e, nil
}

// evaluate gives the constants of a file by name.
func evaluate(path string) (map[string]constant.Value, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	config := types.Config{
		Importer: stubs(),
		// Everything but constants is checked against stubs, and fails; a constant that fails has no value.
		Error: func(error) {},
	}
	pkg, _ := config.Check(file.Name.Name, fset, []*ast.File{file}, nil)
	values := make(map[string]constant.Value)
	for _, name := range pkg.Scope().Names() {
		if c, ok := pkg.Scope().Lookup(name).(*types.Const); ok {
			values[name] = c.Val()
		}
	}
	return values, nil
}

// stubs are the packages that the constants are built from, with nothing in them but that.
func stubs() types.Importer {
	return importer{
		"time": fmt.Sprintf("package time\ntype Duration int64\nconst (Millisecond Duration = %d; Second Duration = %d; Minute Duration = %d; Hour Duration = %d)",
			time.Millisecond, time.Second, time.Minute, time.Hour),
		"github.com/throughline/throughline/pkg/messaging": fmt.Sprintf("package messaging\nconst (CommandPrefix = %q; ReplyPrefix = %q; EventPrefix = %q)",
			messaging.CommandPrefix, messaging.ReplyPrefix, messaging.EventPrefix),
	}
}

// importer gives packages by their path from sources in memory.
type importer map[string]string

func (i importer) Import(path string) (*types.Package, error) {
	src, ok := i[path]
	if !ok {
		return nil, fmt.Errorf("no stub for %s", path)
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path+".go", src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	config := types.Config{Importer: i}
	return config.Check(path, fset, []*ast.File{file}, nil)
}
