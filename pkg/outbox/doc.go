// Package outbox sends messages that are exactly as durable as the transaction that wrote them.
//
// A message is a row of the table outbox, written in the same transaction as the change it tells about (the outbox
// pattern). The [Relay] publishes the rows: first by hand-off from the memory of the process that wrote them, right after
// its commit; what is left behind, for whatever reason, by the sweep. Both together are the relay.
//
// # What it promises
//
//   - A message whose transaction committed is published at least once. A message whose transaction rolled back never is.
//   - The events of one aggregate reach their stream, at first sight, in the order of Aggregate-Seq and without a gap,
//     with any number of instances, also when instances are killed or frozen. A message may be published again at any
//     later time; it then has the same message id.
//   - Commands and replies may be seen in any order.
//   - A broker that acknowledged and forgot is given the message again: a row stays until its acknowledgement is older
//     than the broker's flush horizon, without a disconnect in between.
//
// # Why first sights are in sequence
//
// The sequence number of an event is assigned under a compare-and-set on its aggregate's row. So if event n+1 of an
// aggregate exists, the transaction of event n has committed, and its row could be seen by everybody before.
//
// Within one transaction an aggregate's rows form a chain: its events by sequence, each before what follows it, the command
// or reply last. A chain is published row by row, each after the acknowledgement of the row before. The aggregate's row
// remembers the last row of its last chain.
//
// A chain may be handed off from memory in two cases only. Either the aggregate is new here: no earlier event exists. Or
// the message being handled carries, as Last-Seen, the id of the last row of the last chain: somebody received that row, so
// it was published; it is published only after all rows of its chain; and, by induction, its chain was published after all
// earlier ones. In every other case (a deadline, a request of the client, a repeated or late message) the chain is left
// to the sweep.
//
// The sweep publishes, for each aggregate that has a row to publish, all pending rows of that aggregate, events first and
// by sequence. Rows disappear only after their acknowledgement, so whatever of event n is not pending is out. A row that
// another process is handing off at the same moment is published twice, which is a repeat, not a first sight out of
// sequence: that process' chain begins after everything that came before it, and the sweep's as well.
//
// One instance sweeps at a time, under a lease of three seconds. An instance that was frozen while sweeping, and wakes
// after another has taken over, publishes what was pending when it froze, from its lowest event on: all of that is out by
// then or is being published in the same sequence, so it repeats, but does not overtake.
//
// A process whose connection was interrupted cannot know what the broker still has. It stops handing off, asks for
// a full sweep of everything pending, and hands off again only when a sweep that began after its request has ended. A
// publish is bound to the connection (messaging.Session) that was checked for it: a process that is frozen between the
// check and the publish, and wakes after the broker has returned, publishes nothing.
//
// # What the broker refuses
//
// An event that the broker will never take is set aside after some tries. The later events of its aggregate wait; its
// commands and replies do not. So from then on a command that was received no longer proves that all events before it are
// out. That is why writing a row looks for refused events of its aggregate, and takes the proof from the chain. The
// refusal is committed before a command that follows the event in its chain is published, hence before anybody can answer
// it, hence before a chain that this answer proves is written.
//
// To put it right, mend the message (in outbox_message) or its cause and set set_aside_at in outbox to NULL, but keep refusals: the aggregate then stays with
// the sweep until the event is out. If the sweep is cut short between that event and the next by a broker that stays
// connected, and the event's row is removed meanwhile, a proven chain could pass the rest; no such case is known.
//
// # What is kept of what was sent
//
// A message is written once, into outbox_message, which only grows and is dropped by the day. Beside it, a narrow row in
// outbox says that the message is pending; when it leaves, a narrower one in outbox_sent says which stream has it, under
// which sequence number, since when. [Archive] reads both together and publishes again what an operator selects; it is bound
// to the time that inboxes remember. A day is kept for [Config.Retention], and longer while a message of it is pending. A
// removal that is lost in a crash leads to another publish, and its place is then that of the later copy.
//
// This layout was measured against one that deletes the whole row and copies it into an archive (go test -run '^$' -bench
// Layout -benchtime 1000x -count 3, at 0fb30d6; 2 cores, Postgres 15, fsync on, 500,000 messages with payloads of 200 bytes,
// 500 a transaction, one client that writes and notes acknowledgements in turn, a checkpoint halfway; medians of three runs
// on a machine that had other work, whose rows/s differ by a third, WAL by 1%):
//
//	layout                                  WAL B/row   rows/s   heap MB   index MB   poll ms
//	deleted and forgotten (keeps no story)        631   47,600       112         10      0.5
//	deleted and copied                          1,145   23,100       253          8      1.8
//	the same, B-tree on the aggregate           1,251   21,400       284         26      3.8
//	append-only, narrow pending table             902   35,700       279         26      0.6
//
// The story costs 270 bytes of log a message instead of 510, since the payload is written once, and what is deleted and
// vacuumed is narrow. Aggregates, and what was sent, are found by BRIN indexes with Bloom filters: a B-tree over random ids
// costs another 100 bytes a message.
//
// # In a cluster
//
// The server that loses something need not be the one that we are connected to, and then nothing disconnects. So before rows
// are removed the leader of each stream is asked: if it was elected after they were sent, or the stream ends before them, the
// connection is given up, and all that is pending is published again. That keeps messages, also when most servers lose
// power in one moment. It keeps the sequence only if fewer do: until somebody asks, a second after the acknowledgement at
// the latest, a later event may be handed off to a stream that has lost an earlier one.
//
// # What is not covered
//
// A stream with one replica, in a cluster, on a server other than the one we are connected to: nobody can tell since when that
// server leads it. If it loses what it had not flushed, and others fill the numbers again before we ask, we do not notice.
// Give streams three replicas in a cluster.
//
// # What it needs
//
// The writer keeps an [Aggregate] in a row of its own and stores it by compare-and-set. No row lock and no transaction is
// open while anything is published. Time comes from the database where two processes compare it.
package outbox
