// Package payment is the payment simulator: an HTTP server that stands for the
// payment provider and keeps a ledger of its own. It speaks the part of the
// real provider's interface that stripe-go v82 uses for payments, form-encoded
// requests and JSON answers, closely enough that the official client cannot tell
// the difference. Nothing in it knows who its caller is.
//
//	POST /v1/payment_intents                 create (and confirm, with confirm=true)
//	GET  /v1/payment_intents                 list, newest first
//	GET  /v1/payment_intents/{id}            retrieve
//	POST /v1/payment_intents/{id}/confirm    authorize, or charge with capture_method=automatic
//	POST /v1/payment_intents/{id}/capture
//	POST /v1/payment_intents/{id}/cancel
//	GET  /v1/payment_intents/search?query=   metadata['k']:'v' and status:'s', joined by AND
//	POST /v1/refunds                         by payment_intent or charge
//	GET  /v1/refunds?payment_intent=         list, newest first
//	GET  /v1/refunds/{id}                    retrieve
//	GET  /authenticate/{id}                  where next_action sends the customer
//	     /_control/…                         see services/simulator/control
//
// expand[]=latest_charge is understood wherever an intent is answered, and
// expand[]=data.latest_charge wherever a list of them is.
//
// The list of intents takes limit (1 to 100, default 10), starting_after, and
// created: a number of seconds, or bounds as created[gt], [gte], [lt], [lte]. It
// is consistent: it has whatever was created, as it is. A page costs as much as
// its intents, however many there are. The next page begins after the last
// intent of the one before, so what is created between two pages is in neither.
//
// # Money
//
// Amounts are in the provider's own convention: the currency's smallest unit,
// with its exceptions. Three-decimal currencies (BHD, JOD, KWD, OMR, TND) must
// be a multiple of ten; ISK and UGX have no decimals but are sent with two, which must
// be 00. The largest amount is 99999999. The real one's minimum of about half a
// dollar depends on the account's own currency and is not enforced.
//
// Money moves on confirm (authorization), capture and refund only. Each of
// them looks at the intent's status at the moment it takes effect, so a confirm
// that was held or delayed meets a cancel that came meanwhile.
//
// # Payment methods
//
// The published test methods, under their published names, which also stay the
// value of payment_method (the real one makes a new id):
//
//	pm_card_visa, _visa_debit, _mastercard, _amex, _discover, _diners, _jcb, _unionpay, …   succeed
//	pm_card_visa_chargeDeclined                      card_declined, generic_decline
//	pm_card_visa_chargeDeclinedInsufficientFunds     card_declined, insufficient_funds
//	pm_card_visa_chargeDeclinedLostCard              card_declined, lost_card
//	pm_card_visa_chargeDeclinedStolenCard            card_declined, stolen_card
//	pm_card_visa_chargeDeclinedVelocityLimitExceeded card_declined, card_velocity_exceeded
//	pm_card_chargeDeclinedFraudulent, pm_card_radarBlock  card_declined, fraudulent
//	pm_card_chargeDeclinedExpiredCard                expired_card
//	pm_card_chargeDeclinedIncorrectCvc               incorrect_cvc
//	pm_card_chargeDeclinedProcessingError            processing_error
//	pm_card_authenticationRequired, pm_card_threeDSecure2Required,
//	pm_card_threeDSecureRequired                     requires_action first
//	pm_card_threeDSecureRequiredChargeDeclined, pm_card_authenticationRequiredChargeDeclinedInsufficientFunds
//	                                                 requires_action, then declined
//	pm_card_pendingRefund                            refunds are pending first, then succeed
//	pm_card_refundFail                               refunds succeed first, then fail
//
// Every decline has both forms, pm_card_visa_chargeDeclined… and
// pm_card_chargeDeclined…. One method is this simulator's own:
// pm_sim_captureDeclined authorizes, and its capture is refused for good with
// 402 card_error (card_declined, do_not_honor); the authorization stays open.
//
// A decline answers 402 card_error with the intent in the error. The intent
// goes back to requires_payment_method, with last_payment_error.
//
// # Idempotency keys
//
// As the real one's: a key is bound to one method, path and set of parameters
// (in any order). A repeat gets the first answer's status and bytes with
// Idempotent-Replayed: true, errors included. A key in use answers 409
// (idempotency_key_in_use), one with other parameters or another path 400; both of type
// idempotency_error. Nothing is kept for parameters that fail validation, a
// missing API key, or the conflicts just named. A key is forgotten
// Config.KeyLifetime (24 h) after its first use; a repeat is then a new request. Keys on GET
// are ignored. All API keys belong to one account, so keys are shared.
//
// Search is eventually consistent, as the real one is: an intent is found, with the status
// it then has, only Config.SearchLag after its creation. Absence proves nothing.
//
// # Durability
//
// What was answered survives the death of the process: effect, stored answer
// and call are one line of an append-only journal, written before the answer.
// The disk is flushed four times a second, so a power cut may cost that much.
// Intents and refunds are kept in memory until a reset, about 1 kB each, and stored
// answers for the lifetime of their key, about 1 kB each.
//
// # Webhooks
//
// With Config.WebhookURL set, every change is announced, signed as stripe-go's
// webhook package expects: payment_intent.created, .requires_action,
// .amount_capturable_updated, .succeeded, .payment_failed, .canceled;
// charge.refunded, charge.expired; refund.created, .updated, .failed. Delivery is at
// least once and in no order; see services/simulator/internal/webhook.
package payment
