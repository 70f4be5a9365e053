// Command console serves the operators' web page.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/throughline/throughline/services/console"
)

func main() {
	if err := console.Run(context.Background(), os.Args, os.Environ()); err != nil {
		fmt.Fprintln(os.Stderr, "console:", err)
		os.Exit(1)
	}
}
