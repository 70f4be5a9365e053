// Package messaging carries messages over NATS JetStream: their wire form, the connection's rules, the topology, and
// the loop that consumes.
//
// # What it promises
//
// A publish is either acknowledged by the stream that stored it, or an error; there is no third way. A connection is never
// mended: when it breaks, every publish in flight fails, and another connection is made, which is another [Session].
// A publish belongs to a session, so that an old message can never overtake what its sender has published again since.
// Nothing is buffered while the broker is away.
//
// A consumer gets each message at least once, in batches of what is there, and never waits for a batch to fill. It
// creates its consumer again when somebody deletes it, and survives a broker that is away for any time.
//
// # What it does not promise
//
// Exactly-once delivery, and an order between messages. Both are the business of the packages above: inbox makes
// repeats harmless, outbox keeps the events of one aggregate in sequence.
//
// It must not import any package that touches a database.
package messaging
