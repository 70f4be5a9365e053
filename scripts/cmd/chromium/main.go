// Command chromium makes sure that there is a browser for the tests: it installs Chromium where there is none and that is allowed, and says
// what to type where it is not.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/throughline/throughline/scripts/internal/browser"
)

// timeout bounds the download of a browser over a slow line.
const timeout = 10 * time.Minute

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "chromium:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := browser.FindOrInstall(ctx, os.Stderr)
	return err
}
