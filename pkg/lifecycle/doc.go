// Package lifecycle starts the parts of a process in order and ends them in
// reverse order, without losing the work in hand.
//
// Every part lives under two contexts. When stop is done it takes no new work,
// finishes what it has and returns; when work is done it drops that too. A timer
// of the [Group] turns the one into the other, so that one slow call cannot hold
// up a shutdown for ever:
//
//	stop, work, release := lifecycle.Signals(ctx) // 1st signal: stop, 2nd: work
//	defer release()
//	g := lifecycle.New(logger, 20*time.Second)
//	g.Add("relay", relay)
//	g.Add("grpc", server)
//	return g.Run(stop, work, nil)
//
// Promises of a Group:
//
//   - A component is started when the one added before it is ready.
//   - A component is told to stop only when the one added after it has
//     returned, so what it still needs is there until its end. Add what others depend on first.
//   - When one returns before it was told to stop, with an error or without,
//     the whole group stops and Run returns that error.
//   - After the grace period all work contexts are cancelled; a component that then does not
//     return either is named in the error, and Run returns without it.
//
// A Group is itself a Component, so groups nest. It does not recover panics: a
// process that panics ends, and everything here is built to survive that.
//
// [Health] is the other half: named checks behind /healthz and /readyz.
package lifecycle
