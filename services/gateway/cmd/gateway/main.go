// Command gateway serves the public HTTP and gRPC API.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/throughline/throughline/services/gateway"
)

func main() {
	if err := gateway.Run(context.Background(), os.Args, os.Environ()); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}
