// Package ceiling plays what the product does to its databases for one order, and nothing else: no HTTP, no gRPC, no broker,
// no engine. It is what the product could reach at best.
//
// The statements are not written down here, since they would drift from the product's. A [Recorder] stands between the real
// services and their databases while one order goes through them, and a [Story] is what it has seen that concerns the order:
// every transaction, with its statements and arguments, by the part of the product that sent it. A [Player] then repeats the
// story for order after order, with fresh ids in the place of the recorded ones, in databases that the product has migrated.
//
// The parts hand orders to each other over Go channels. Each part takes one order at a time, or as many as wait, up to a
// limit, whose rows go into one execution of each statement and one commit: what the product's own batches do.
package ceiling
