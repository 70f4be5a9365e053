// Package control is the Go client of the simulators' control interface, and
// the words that go over it. The interface itself is plain JSON over HTTP, the
// same on both simulators; this package only saves typing. It is stable:
// members are added, never renamed or given another meaning.
//
// A simulator serves the interface under /_control/ to loopback callers only
// (others get 403). Bad input gets 400 and {"error":{"message":…}}.
//
//	GET    /_control/ledger?order_id=   what the simulator holds; without order_id everything
//	GET    /_control/faults             the rules, with how often each was met
//	POST   /_control/faults             add a rule (Fault) → {"id"}
//	DELETE /_control/faults             remove all rules
//	DELETE /_control/faults/{id}        remove one rule
//	POST   /_control/release            let held calls go on; {"id"} for one rule's only → {"released"}
//	POST   /_control/reset              forget ledger, keys, calls and rules
//	POST   /_control/act                {"order_id","do"}: a person at the provider's own site → {"acted":[ids]}
//	POST   /_control/webhooks           WebhookRequest → {"id"}
//
// # Rules
//
// A rule matches calls by operation ("*" for any) and, when set, order id. Nth
// counts the calls it matched since it was added, from 1: it works from the
// Nth on, for Times of them (0: without end). A call is matched when it
// arrives; its order id is the one in its body or of the object it names.
//
// Operations: payment_intents.create, .confirm, .retrieve, .list, .search,
// .capture, .cancel, refunds.create, .list, .retrieve at the payment simulator;
// shipments.create, .get, .find, .list, .cancel, .dispatch at the carrier
// simulator. A list of intents or shipments is about no order.
//
// Actions:
//
//   - delay: wait delay_ms, then carry on. With "effect":"before" the effect
//     happens first and only the answer is late.
//   - hold: wait until released. The effect happens after the release, or
//     first with "effect":"before". A held call goes on after its release even
//     if its client has gone. A release, or removing the rule, lets all of its
//     held calls go and ends the rule. When the simulator stops, calls held
//     before their effect end without it.
//   - drop_after: the effect happens, then the connection is cut unanswered.
//   - fail_before: no effect; answer status (default 500) and body.
//   - fail_after: the effect happens; then answer status (default 500) and body.
//   - answer: no effect; answer status (default 200), body and content_type.
//   - no_dedup: this call's idempotency key is neither looked up nor kept.
//
// delay_ms can be added to every action: the call first waits that long.
// When several rules match one call, all of their no_dedup and delay apply, and of
// the other actions that of the oldest rule.
//
// Idempotency keys see faults the way the real provider's do. A call waits
// after it has claimed its key, so a second one meanwhile gets 409. A failure
// after the effect is stored under the key and replayed, as the real provider
// replays a 500; a failure or answer before the effect is not stored, as if an
// edge in front of the provider had given it. "stored" overrides either.
//
// Rules live in memory: a restart of the simulator ends them. The ledger, the
// keys and the calls are durable.
//
// # Calls
//
// The ledger lists every call from its arrival on, in order of arrival. Until
// a call has its outcome its status is 0; afterwards status is what the client
// was answered, or 0 with "dropped":true. effect says that this very call
// changed something (a decline, a replay and a read do not). The list keeps
// the newest calls only (200,000 by default); calls_dropped counts the rest.
package control
