// Package inbox makes repeated messages harmless.
//
// JetStream delivers a message at least once, and the relay publishes it at least once. A consumer therefore records each
// message it has dealt with in the table inbox, keyed by consumer and message id, in the very transaction that records the
// effect. A repeat finds the row, is acknowledged and does nothing.
//
// # What it promises
//
//   - The effect of a message on this database happens at most once per consumer, with any number of instances: the
//     row is a plain insert, and its primary key settles the race of two instances with one message. The loser's whole
//     transaction is rolled back.
//
//   - A message is acknowledged only after that transaction has committed.
//
//   - A message that cannot be dealt with ends as a dead letter, with its error, and is never dropped silently. It has
//     no inbox row then.
//
//   - An error of our own database never counts against a message: the consumer pauses instead. What counts are attempts
//     that failed by the message's own fault, kept in table inbox_failure; the broker's count of deliveries is not used.
//
//   - One bad message does not stop its neighbours: a batch that fails is split until the bad one stands alone.
//
//   - A dead letter can be looked at, replayed from its row or discarded, with who and why on record ([DeadLetters]). The
//     handler runs in the service; no other consumer sees a replay.
//
//   - With [Processor.Sequenced], later events of an aggregate and service wait behind one that fails or is dead. Commands
//     and replies never wait.
//
//   - A row lives for its TTL, and for as long after that as anything older is not acknowledged ([Reaper]).
//
// # What it does not promise
//
// An order between messages that two instances have in hand at the same moment; and nothing about effects outside of this database, which belong into steps (package
// participant). Rows expire after the inbox TTL, which must exceed the age of the oldest message that can still arrive.
package inbox
