// Package verify proves that orders, money, parcels and messages agree, while the system runs. A [Server] in each service tells what
// that service knows (throughline.verify.v1.VerifyService); a [Verifier] asks all of them and compares. It only reads.
//
// Three kinds of answers are kept apart. A violation is something that must not be: a rule is broken, and stays so while nothing that could mend
// it is under way. What is in flight is not wrong yet: the order is on its way, or something is still to be done for it. A gap is what could
// not be asked: a run with gaps is incomplete, and never clean.
//
// The rules, by the names under which reports, logs and metrics have them:
//
//	one-charge                     at most one payment of an order holds or has taken money
//	one-parcel                     at most one parcel of an order is live
//	captured-within-authorized     no payment took more than it was about
//	refunded-within-captured       no payment gave back more than it took
//	confirmed-is-paid-and-shipped  a CONFIRMED order has its total captured, in its currency, nothing held beside it, and its parcel
//	closed-is-undone               a FAILED or CANCELLED order has nothing held, captured or live
//	own-record-agrees              the order's status is that of its saga, and the services' own rows say what the outside says, unless a person
//	                               has said that a step was done by other means
//	unknown-order                  money and parcels belong to orders that exist
//	money-adds-up                  per currency, what was captured and not given back is the sum of the CONFIRMED orders
//	past-deadline                  nobody waits for longer than [OverdueGrace] to look after an order that is on its way
//	no-timer                       an order that is on its way has something that reminds of it
//	outbox-lost                    each message that was written is pending, or its place in a stream is on record
//	stream-lost                    an event is where its stream has acknowledged it
//	inbox-missing                  each command and reply that was consumed has its inbox row, or is a dead letter
//
// An order that NEEDS_ATTENTION is open: a person decides, and no rule about its money or parcels applies.
//
// How a run stays true while orders move: orders are read first, then the outside. An order that was at rest when it was read must have
// its effects from then on; one that was not is left alone, but for its deadline. What looks wrong then is looked at again, by its id and from
// the beginning, until two looks in a row find the same: the same revision and the same broken rules, with nothing pending. A step that is
// due, a message in an outbox and a message that its consumer has not acknowledged are pending. What still changes after the last look is in flight.
//
// What a run costs: reads of indexes, in pages, one call at a time; a share of the time can be given, see [Options]. Of each order it keeps 56 bytes,
// up to a quarter more while the list grows, so a million orders take 70 MB. Of the outside it keeps one page.
package verify
