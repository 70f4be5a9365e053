// Package stored fills databases with orders that went through long ago.
//
// What an order leaves behind is not written down here: it is read from the databases after a real one, in the binary form of
// COPY, and written back as often as is wanted, with other ids, keys, numbers and times in their places. So the rows have the
// product's own shapes, whatever these become. Tables are loaded without their indexes, which are built afterwards.
//
// The orders are a history: the youngest have all that an order leaves behind, and those before them, placed longer ago than anything is kept for
// a time, have only what is kept for good.
package stored
