package e2e_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/throughline/throughline/scripts/e2e/system"
)

func TestMain(m *testing.M) {
	if store := os.Getenv(brokerVariable); store != "" {
		if err := runBroker(store); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	system.Clean()
	os.Exit(code)
}
