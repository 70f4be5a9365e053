// Package localnet connects the servers and clients of one process without the network.
//
// A process that holds several services, as small installations and developers' machines do, would otherwise talk to itself through the
// kernel: each message costs system calls, a pass through the whole of TCP, and the waking of a thread. A [Network] leaves the
// services as they are, with their addresses and protocols, and takes the kernel out from between those that are in the same process.
//
// Promises: what is dialed at the address of a server of this process reaches it, and everything else, and everybody else, goes over the network as
// before. Connections are streams with deadlines, and end with either side, as those of TCP are. A server that has stopped is not reached, and one that starts again at
// the address is.
//
// It does not promise a server that starts later: a client that dials before its server listens here gets what the network says. It knows nothing
// of names: an address is what the server's listener calls itself.
//
// It imports no other package of ours.
package localnet
