// Command bench measures how fast Throughline is on this machine, beside what the machine could do at best.
//
// Four systems are measured one after another in one run, so that their ratios hold whatever the machine does that day:
//
//   - ceiling_single: the product's own statements for an order and nothing else, one commit a message (package ceiling).
//   - ceiling_batched: the same, with the rows of up to a hundred orders in one commit.
//   - inprocess: the product over HTTP, gRPC and JetStream, with provider and carrier answered without a network.
//   - http: the same with the simulators of provider and carrier, over HTTP.
//
// See README.md for what the figures say, and package cluster for how they are counted.
package main
