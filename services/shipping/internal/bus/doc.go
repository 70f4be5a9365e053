// Package bus is the shipping service's side of the messages: the steps that commands ask for, and the events and business rows that
// come of their results.
//
// # How a step is made safe
//
// The carrier books a shipment for each creation that reaches it. So a creation is sent blindly only once, at the very first
// attempt; afterwards what the carrier has under the reference is looked up first, and not before a request that may still be on its
// way has had time to arrive. Should there be two after all, one is kept and the other cancelled. And because no time is ever long enough,
// a creation that was in doubt is looked up again after the step is over, for a day.
package bus
