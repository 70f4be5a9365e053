// Package fault marks the edges at which a crash must do no harm, so that a test
// can crash exactly there.
//
//	fault.Point(fault.InboxCommitted)          // committed, not yet acked
//	if err := fault.Err(fault.OutboxPublish); err != nil { … }
//
// Without the build tag faultpoints both are empty functions that the compiler
// inlines away, and [Check] refuses to start a process whose environment asks
// for faults: a crash test against the wrong binary must fail, not pass.
//
// With the tag, [Check] arms the points named in THROUGHLINE_FAULT_POINTS, a comma-separated
// list of
//
//	name=kill:n      the process kills itself (SIGKILL) at the nth passage, n from 1
//	name=hold:path   each passage waits until the file path exists
//	name=err:n       Err returns [ErrInjected] at the nth passage; err:* at every one
//
// kill and hold work at Point and at Err alike; err only at Err. Passages are counted per
// process. A kill is a real one: nothing deferred runs, nothing is flushed.
//
// Every point is declared in points.go, where its comment says what is durable
// at that moment. A point that is not declared there is refused by [Check], and
// a test of this package finds undeclared names in the sources.
package fault
