// Command bench measures how fast Throughline is on this machine, beside what the machine could do at best.
//
// Systems run side by side and are measured in turns, seconds apart, so that their ratios hold whatever the machine does that minute:
//
//   - ceiling_single: the product's own statements for an order and nothing else, one commit a message (package ceiling).
//   - ceiling_batched: the same, with the rows of up to a hundred orders in one commit.
//   - inprocess: the product over HTTP, gRPC and JetStream, as the product's own command runs it, with provider and carrier answered
//     without a network.
//   - http: the same with the simulators of provider and carrier, over HTTP.
//   - apart: inprocess with JetStream in a process of its own.
//   - sampled, traced: inprocess with a tenth of all traces recorded, and with all of them.
//
// See README.md for what the figures say, and package cluster for how they are counted.
package main
