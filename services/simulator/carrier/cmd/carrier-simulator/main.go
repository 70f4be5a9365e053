// Command carrier-simulator runs the carrier simulator by itself.
package main

import (
	"context"
	"os"

	"github.com/throughline/throughline/services/simulator/carrier"
	"github.com/throughline/throughline/services/simulator/internal/httpserve"
)

func main() { os.Exit(httpserve.Main("carrier-simulator", run)) }

func run(ctx context.Context, args, env []string) error {
	c, err := carrier.ParseConfig(args, env, os.Stderr)
	if err != nil {
		return err
	}
	return carrier.Run(ctx, c)
}
