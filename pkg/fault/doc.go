// Package fault marks the edges at which a crash must do no harm, so that a test
// can crash exactly there.
//
//	fault.At(fault.StepCalled, order, step) // answered, not yet recorded
//	fault.Point(fault.OutboxRemoving)       // not about one order
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
//	*=trip:dir       the process kills itself at a passage whose file in dir it can remove; see [Wire]
//
// Passages are counted per process. A trip is for one passage of one order, in whichever life of the process it comes, and can
// be laid while the process runs; that the file is gone proves that the passage was reached. A kill is a real one: nothing
// deferred runs, nothing is flushed.
//
// Every point is declared in points.go, where its comment says what is durable
// at that moment. A point that is not declared there is refused by [Check]; a
// test of this package finds undeclared names in the sources, and declared ones that nothing passes.
package fault
