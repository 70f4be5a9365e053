// Command shipping runs the shipping service.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/throughline/throughline/services/shipping"
)

func main() {
	if err := shipping.Run(context.Background(), os.Args, os.Environ()); err != nil {
		fmt.Fprintln(os.Stderr, "shipping:", err)
		os.Exit(1)
	}
}
