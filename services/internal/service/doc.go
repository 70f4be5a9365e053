// Package service is what the order, payment and shipping services have in common: how one starts, what it waits for, and
// in which order it ends.
//
// A service is a [Spec]: its name, its migrations, and a Build function that makes its parts from a [Runtime]. [Main] is the
// whole program around it, [Run] the part that serves; a process that holds several services calls Run for each.
//
// # Starting
//
// Ports are bound first, that of webhooks too if there is one, so that one that is taken is an error at once, which names it. Then
// /healthz, /readyz and /metrics are served. Then the service waits for its database for as long as it takes, migrates it, connects to
// the broker, and builds its parts; it is alive and not ready meanwhile. What waiting cannot cure, such as a refused password, ends it.
//
// The broker is waited for only shortly: what a service commits is in its outbox, so it takes calls also without the
// broker, and says on /readyz that the broker is missing. Streams are ensured after each reconnect.
//
// # Ending
//
// In reverse: first gRPC drains and the consumers end, then the service's own components, the relay, the connection to the broker
// and the pool, and last the probes and the telemetry. Each has what it needs until it has returned.
package service
