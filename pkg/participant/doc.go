// Package participant performs the steps of sagas that have effects outside of the database: at a payment provider, at a
// carrier.
//
// A command is taken in by one transaction that holds its inbox mark and its intent, a row of the table step; then it is
// acknowledged. From then on the step table is the queue. A step is performed under a lease with an owner, an end and a fencing
// token; its result is recorded, with the business row, the events and the reply, in one transaction that holds only while
// the token does. First try, retry, recovery after a crash, and takeover from a frozen instance are this one mechanism.
//
// # What it promises
//
//   - At any time at most one owner, by the token, can record a result; and at most one call is under way, as long as
//     calls end within their lease: each call is bounded by the caller's own monotonic clock, started before the claim.
//   - A call that died may have had its effect. So every attempt after the first must first find out: [Call.Attempt] tells.
//   - No network call is made inside a transaction, or under an unacknowledged message.
//   - A command asked again, under a new message id, for a finished step gets the recorded reply again.
//   - Undo before action: an undo commits tombstones for the actions it undoes before it does anything else. An action that
//     arrives later is refused without a call. While an action may be in flight, its undo waits: for its record, or for its
//     lease and a settling time; then it shuts the owner out, so that his late result is not recorded beside the undo. An
//     attempt that ended without an answer is in flight for the settling time, too.
//   - An action that was undone before it had an outcome is closed by its undo, without a reply; asked for again, it is
//     refused. One that was done is refused as well, once it was undone.
//   - A step whose outcome is unknown is attempted again, with growing delay and without a limit, unless it is undone.
//   - What an attempt without an answer may still bring about, after its step and even its order are over, is looked after by the
//     action's check, if it has one.
//
// What came of each attempt, with what it asked the outside ([Note]), is kept in the step's row and written with the result: [Histories]
// reads it. An attempt whose owner has recorded no end is on record as lost when the step is taken over.
//
// A hint from outside that something has changed ([QueueNudge]) lets a step look at once. It carries no meaning of its own.
//
// # What it asks of the service
//
// A [Step] for each step, whose Perform turns a [Call] into an [Outcome] and does nothing to the database; and a
// [Projector] that keeps the service's business row in step.
package participant
