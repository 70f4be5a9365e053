package system

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var (
	buildOnce sync.Once
	built     string
	errBuild  error
)

// Binary builds the program once per test binary, and gives its path.
func Binary(tb testing.TB) string {
	tb.Helper()
	buildOnce.Do(func() { built, errBuild = build() })
	if errBuild != nil {
		tb.Fatalf("building the program: %v", errBuild)
	}
	return built
}

// build puts the program where every test binary of this user finds it, and lets the go command decide whether anything is
// to be done. The name tells test processes apart, so that none replaces a program that another runs.
func build() (string, error) {
	dir, err := os.MkdirTemp("", "tl-bin-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "throughline")
	//nolint:noctx // the test's own time limit ends it
	out, err := exec.Command("go", "build", "-o", path, "github.com/throughline/throughline/services/throughline/cmd/throughline").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}

// Clean removes the program. Call it at the end of TestMain.
func Clean() {
	if built != "" {
		_ = os.RemoveAll(filepath.Dir(built))
	}
}
