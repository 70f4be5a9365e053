// Package sagatest lets the test of a saga's definition read as a story:
//
//	sagatest.Start(t, placeorder.Definition, order).
//		Sent("authorize_payment").Done().
//		Sent("create_shipment").Refuse("address_unknown").
//		Sent("void_payment").Done().
//		SentNothingElse().
//		Ended(saga.Compensated)
//
// The participants are played by hand, and so is the clock. Nothing is stored and nothing runs beside the test: what is
// tested is the definition and the pure function that advances it, saga's Definition.Advance. Each failure prints what was wanted, what came,
// and the saga's history up to there.
//
// Sagas outlive releases: [Record] runs one on Postgres and gives what its rows say, to be kept in a file, and [Replay] shows that a later
// release would still do the same.
//
// It also has the suite that every saga.Store passes ([TestStore]), and a store in memory for simulations ([Memory]).
package sagatest
