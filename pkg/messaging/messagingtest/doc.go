// Package messagingtest gives each test a JetStream server of its own: a real one, in process, on a free loopback port,
// with its streams in the test's temporary folder. It starts in some 30 milliseconds and stops at the end of the test.
package messagingtest
