package layout

import "testing"

func TestServices(t *testing.T) {
	t.Parallel()
	problems, err := Services(repository())
	if err != nil {
		t.Fatal(err)
	}
	report(t, problems)
}

func TestLibrary(t *testing.T) {
	t.Parallel()
	files, err := Load(repository())
	if err != nil {
		t.Fatal(err)
	}
	report(t, Library(files))
}
