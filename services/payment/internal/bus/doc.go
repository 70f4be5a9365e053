// Package bus is the payment service's side of the messages: the steps that commands ask for, and the events and business rows
// that come of their results.
//
// # How a step is made safe
//
// Nothing is done at the provider without either knowing that it is the first time, or having asked what is there. The
// intent's status decides (package payment), not the answer to a call: an answer that says no, or says nothing, is followed by the
// question what the intent looks like now.
//
// The provider keeps the answer to each key, errors included, and repeats it. A repeated answer proves that the request it was
// given to is over; only then, and only if the intent shows no effect, is the operation sent under a further key.
package bus
