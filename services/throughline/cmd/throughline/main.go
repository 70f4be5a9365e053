// Command throughline runs the whole system, or one service of it, and is the operators' command line.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/throughline/throughline/services/throughline"
)

func main() {
	if err := throughline.Run(context.Background(), os.Args, os.Environ()); err != nil {
		fmt.Fprintln(os.Stderr, "throughline:", err)
		os.Exit(throughline.ExitCode(err))
	}
}
