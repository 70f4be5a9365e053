// Package grpcx is how our services call each other over gRPC: servers and clients made in one way, the metadata that
// travels beside a call, and the errors that come back.
//
// # Servers
//
// NewServer makes a server that refuses every call without the service credential (compared in constant time), or to the services that are for
// operators without theirs, bounds
// messages, headers and the time a call may take, turns panics and unplanned errors into INTERNAL without telling
// their text, and makes one span per call. It serves gRPC health checks, so that clients stop sending to one that drains.
//
// # Clients
//
// Dial makes a connection to one or several instances of a service, spread over those that say that they serve. It
// adds the credential (a wrong one shows as codes.Unavailable, since the health check is refused first), and takes a
// margin off the deadline at every hop, so that the caller outlives the callee and can still report. It never repeats a
// call by itself once it was sent; who may repeat what is the caller's decision.
//
// # Metadata
//
// What travels is listed in metadata.go and nowhere else. Outgoing replaces all outgoing metadata with the given
// entries: nothing that came in goes out by itself. ClientID and IdempotencyKey read the entries on the other side.
//
// # Errors
//
// Error makes a status with a google.rpc.ErrorInfo whose reason is one of the list in reasons.go; the reason, not the
// code or the text, is what programs decide by. ReasonOf, Violations and RetryDelay read it back.
package grpcx
