// Command payment-simulator runs the payment simulator by itself.
package main

import (
	"context"
	"os"

	"github.com/throughline/throughline/services/simulator/internal/httpserve"
	"github.com/throughline/throughline/services/simulator/payment"
)

func main() { os.Exit(httpserve.Main("payment-simulator", run)) }

func run(ctx context.Context, args, env []string) error {
	c, err := payment.ParseConfig(args, env, os.Stderr)
	if err != nil {
		return err
	}
	return payment.Run(ctx, c)
}
