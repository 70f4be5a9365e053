// Package payment holds what the payment service knows of payments: what the provider's intents say, and what each step does
// about it. It decides and does nothing: no call, no database, no clock.
package payment
