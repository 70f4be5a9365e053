// Package idempotency keeps the answers of requests, so that a request that is repeated with its key gets the same answer
// and has no second effect.
//
// # Claim
//
// There is no claim apart from the effect. The record of an answered request is inserted in the transaction that has the
// request's effect ([QueueInsert]), with its answer, under an id that follows from client, operation and key (keys.RequestID,
// or keys.OrderID where the key names the thing itself). So there is never a record without the effect, nor the reverse,
// and no "in progress" row that a crash could leave behind to be waited for, expired or stolen.
//
// The primary key arbitrates between two requests with one key that run at once. The second one's insert waits for the
// first one's transaction: if that commits, the insert fails with a violation of [Constraint], the whole transaction of the
// second is undone, and it replays; if that rolls back, the second goes on and is the first. The wait is bounded by
// lock_timeout; who waits longer answers "still running, ask again", which is true.
//
// # Replay and mismatch
//
// [Find] up front saves a transaction that would fail, and is nothing more than that: only the insert is the truth.
// When there is a record:
//
//   - The request is the same: the stored answer is given again, status and bytes, and marked as a replay.
//   - The request is another one: it is refused, has no effect, and learns nothing of the stored answer.
//
// Whether it is the same is the caller's to say, field by field, by comparing it with the canonical request that it has
// kept. [Record.Same] is the fast path: equal fingerprints of one version are the same request. Different fingerprints,
// or different versions, decide nothing: a field that is new since then changes the hash of a request in which it is absent.
//
// Store answers that are final: successes and definite refusals. A request that was refused because it is malformed does not
// use up its key, and a failure that may pass is never stored.
//
// A [ReplayCounter] counts the replays, on the side.
//
// # Lifetime
//
// A record lives for [DefaultLifetime], longer than clients retry, and is then removed by the [Reaper]: in small batches, by one
// instance at a time. What must hold for ever cannot depend on it: an operation that creates something lets the thing's own
// primary key, which never expires, be the arbiter, and has this record as the memory of the answer's bytes.
// A record that has expired and is not removed yet is not found.
//
// # What it does not do
//
// It parses no header (package keys does), knows no transport, and opens no transaction of its own beside the reaper's.
package idempotency
