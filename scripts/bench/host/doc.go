// Package host runs the parts of the product for the bench: the services, the broker and the simulators, each in a process
// of its own, so that what they use can be told apart. The processes are the bench's own program, called again with a role.
//
// A process is told what it needs in one line of JSON on its standard input, answers with one on its standard output when it is
// ready, and stops when its standard input ends: it never outlives the bench.
package host
