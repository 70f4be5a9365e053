// Package keys derives every identity that is carried along with one
// idempotency key, and reads the key from the header that brings it.
//
// A client mints a key; everything else follows from it, so that a retry at any
// hop arrives at the same names without asking anybody:
//
//	order id     = UUIDv5(OrderNamespace, parts(client id, key))
//	step key     = UUIDv5(order id, step name)
//	provider key = UUIDv5(step key, operation)
//	request id   = UUIDv5(RequestNamespace, parts(client id, operation, key))
//
// where parts(p1, p2, …) is each part preceded by its length in bytes as an
// unsigned 64-bit big-endian number. The length makes the boundaries
// unambiguous: ("ab", "c") and ("a", "bc") are different orders, which no
// separator can promise, since a key may hold any printable character. None of
// the derivations contains a time, an attempt or a random value.
//
// UUIDv5 is that of RFC 9562 section 5.5: SHA-1 over the 16 bytes of the
// namespace and then the name. Test vectors, for other languages:
//
//	parts("storefront", "cart-17")
//	    = 00 00 00 00 00 00 00 0a 73 74 6f 72 65 66 72 6f 6e 74
//	      00 00 00 00 00 00 00 07 63 61 72 74 2d 31 37
//	OrderID("storefront", "cart-17")             = bc765b28-bc4d-58fd-a83e-d135647f37a8
//	StepKey(that, "authorize_payment")           = 5665917c-6373-5fb0-9b0b-bdabd76539bc
//	ProviderKey(that, "payment_intents.create")  = 75ed65ec-e66d-53c0-8e81-6acb925dacbe
//	RequestID("storefront", "orders.cancel", "cart-17-cancel")
//	                                             = ade94cd8-fd69-5715-8f8f-b1059d3363ac
//
// Message ids are the one exception: they are minted (UUIDv7), once, when the
// message's outbox row is written.
//
// The package promises that these derivations never change. It does no I/O and
// knows nothing of what an order or a step is.
package keys
