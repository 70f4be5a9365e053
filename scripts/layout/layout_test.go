package layout

import (
	"io/fs"
	"os"
	"testing"
)

// repository is the root of the repository, from this package's folder, where go test runs it.
func repository() fs.FS { return os.DirFS("../..") }

func report(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

func TestTopLevel(t *testing.T) {
	t.Parallel()
	problems, err := TopLevel(repository())
	if err != nil {
		t.Fatal(err)
	}
	report(t, problems)
}

func TestSource(t *testing.T) {
	t.Parallel()
	files, err := Load(repository())
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("found no Go files: the tests run in another place than expected")
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for _, f := range files {
				report(t, r.rule(f))
			}
		})
	}
}

var rules = []struct {
	name string
	rule func(*File) []string
}{
	{"ModuleImports", ModuleImports},
	{"DomainImports", DomainImports},
	{"ServiceImports", ServiceImports},
	{"StatelessImports", StatelessImports},
	{"Mains", Mains},
	{"Size", Size},
	{"Init", Init},
	{"Words", Words},
	{"PackageName", PackageName},
	{"Exit", Exit},
	{"Waiting", Waiting},
	{"Skipping", Skipping},
}
