package e2e_test

import (
	"os"
	"testing"

	"github.com/throughline/throughline/scripts/e2e/system"
)

func TestMain(m *testing.M) {
	code := m.Run()
	system.Clean()
	os.Exit(code)
}
