// Package natsserver runs a NATS server with JetStream inside this process, on a loopback port: for development
// ("make up"), demonstrations and tests. It is a real server, reached over TCP as any other, but one alone, and also
// the servers of [StartCluster] are all in this process: for production run a cluster of servers on machines of their own.
//
// What JetStream has acknowledged is on disk only after [Config.SyncInterval]; a crash of the machine within it loses
// acknowledged messages (a crash of the process alone does not). The outbox of this module knows that interval and
// keeps its rows for longer. What a stream with three replicas has acknowledged is with two servers of a cluster at least.
//
// The server never handles signals: when to stop is for the process to decide.
package natsserver
