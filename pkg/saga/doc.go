// Package saga runs a business transaction that spans services as a sequence of steps, and undoes it completely when it
// cannot be finished.
//
// A [Definition] lists the steps. Compensatable steps come first, each with its undo; then at most one pivot, the point
// after which the saga is meant to succeed; then retriable steps. The [Engine] sends each step's command to its
// participant and waits for the reply. Steps that do not need each other can run side by side ([Parallel]).
//
// A step has three outcomes. Done: the saga goes on. Refused, a business no: the saga turns back and undoes what was done, in
// reverse. Unknown, which is silence, or an error, or anything else: it is never read as a yes or a no. When a step's deadline
// passes, the engine asks the participant what became of it, and sends the command again only if the participant has no
// record. When the step's budget is used up, the saga turns back, and also undoes the step that is in doubt; at and after the
// pivot it waits for a person instead, and goes on asking.
//
// # What it promises
//
//   - Each saga ends, completed or compensated, or shows that it needs attention.
//   - It ends as compensated only when every undo has been confirmed.
//   - Undo commands are repeated, with growing delay, without a limit.
//   - State and messages are written in one transaction (package outbox); replies are dealt with once (package inbox).
//   - Replies may be repeated, late or out of sequence.
//
// # What it asks of participants
//
// Every attempt of a step carries the same step key; a participant performs a step at most once. An undo that arrives before its
// action succeeds, and the action, arriving later, is refused. Package participant does both.
//
// The decisions are made by a pure function, [Definition.Advance], that knows no clock, no database and no broker. Package
// sagatest lets tests of a definition read as stories.
package saga
