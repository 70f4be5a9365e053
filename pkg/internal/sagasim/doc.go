// Package sagasim is the model test of sagas: it runs engines (package saga) and runners (package participant), as production has
// them, in a world of its own, where one thing happens after another and nothing happens by chance.
//
// The world has a clock, stores in memory or on Postgres, two instances of each of three services, a broker, a payment provider and a
// carrier. Two versions of one saga run side by side, in one of which two steps do, too. All that services do to each other and to their stores is an operation at which the world stops them; it then chooses who
// goes on, and what goes wrong: messages that are lost, for a while or for good, repeated, late or overtaken, requests and answers that are lost or late, processes
// that die before or after any operation or stand still, failures that the provider stores and repeats, time that passes, clients that cancel,
// persons who decide about an order that needs one. What follows from one seed, or from the
// list of its choices, can be repeated exactly; so a schedule that fails can be cut down to the choices that matter.
//
// A schedule may have only so many faults. It runs until nothing can happen any more, and then all must be well:
//
//   - G1: at most one charge, and one live shipment.
//   - G2: a completed saga has its money and its one shipment; a compensated one holds nothing and has none. This is checked in the
//     moment in which the saga says so, as well as at the end.
//   - G3: every saga ends, or waits for a person because an undo was refused. A step whose budget is used up turns the saga back, or a
//     person is told.
//   - Nothing is left over: no message, no outbox row, no step without an outcome. A cancel that was accepted leads to the undo.
//   - Each message is dealt with in one transaction. The events of each aggregate are first seen in sequence.
//
// The outbox's relay and the steps of the payment and shipping services are models here: the real ones are bound to a broker and to
// HTTP. Clocks do not differ between processes.
package sagasim
