// Package trail tells what became of an order: what one service has on record ([Register] serves it as TrailService, the same at every
// service), and all of it as one story ([Assembler] asks all services and merges what they say).
//
// # What is told
//
// Nothing is written for the trail alone. It is read from what the services keep anyway: the order, the record of its key, the history of
// its saga, what was sent and received, steps with the history of their attempts, dead letters, and what operators have done. So it is as
// true as these, it costs an order next to nothing, and it is there for orders of any age; only messages and inbox rows expire. What can
// not be told is said: as a gap for a service that did not answer, as left out for what expired or was too much.
//
// # How entries are ordered
//
// By cause first: an entry stands behind the one that led to it, whatever their clocks say. Where causes leave a choice, by time. Services
// have a clock each, that of their database; where an effect is seen before its cause, the difference is told.
//
// # Who may see what
//
// The service answers operators only. Personal data is masked, unless the caller asks for it, with a name and a reason; this is put on
// record with the order before the answer, and is then an entry of its trail.
package trail
