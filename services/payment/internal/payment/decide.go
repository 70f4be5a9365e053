package payment

// Act is what a step does next about an intent.
type Act uint8

// The acts. The zero value is the one that claims nothing.
const (
	// Ask says that the intent tells neither a yes nor a no, and that nothing may be done but to ask again.
	Ask Act = iota
	// Finish says that the step is done.
	Finish
	// Refuse says that the step can never be done, for Decision.Reason.
	Refuse
	// Confirm, Capture, Cancel and RefundRest are calls to the provider.
	Confirm
	Capture
	Cancel
	RefundRest
	// AwaitCustomer and AwaitRefund say that somebody else must act first.
	AwaitCustomer
	AwaitRefund
)

// Decision is an act, with the reason of a refusal.
type Decision struct {
	Act    Act
	Reason string
}

// Reasons of refusals, beside the words for declines. They are stable: clients see them.
const (
	ReasonInvalidCommand         = "invalid_command"
	ReasonInvalidPaymentMethod   = "invalid_payment_method"
	ReasonAmountNotAccepted      = "amount_not_accepted"
	ReasonCurrencyNotAccepted    = "currency_not_accepted"
	ReasonRejected               = "rejected_by_provider"
	ReasonCanceledAtProvider     = "canceled_at_provider"
	ReasonRefundedAtProvider     = "refunded_at_provider"
	ReasonCapturedInPart         = "captured_in_part"
	ReasonAuthorizationExpired   = "authorization_expired"
	ReasonAuthenticationRequired = "authentication_required"
	ReasonNotAuthorized          = "not_authorized"
	ReasonChargeDisputed         = "charge_disputed"
	ReasonRefundRefused          = "refund_refused"
)

// Words for declines. Why exactly a bank declined, such as a card reported stolen, is for the bank to tell its customer.
const (
	ReasonCardDeclined         = "card_declined"
	ReasonInsufficientFunds    = "insufficient_funds"
	ReasonExpiredCard          = "expired_card"
	ReasonIncorrectCVC         = "incorrect_cvc"
	ReasonIncorrectNumber      = "incorrect_number"
	ReasonProcessingError      = "processing_error"
	ReasonAuthenticationFailed = "authentication_failed"
)

// ForAuthorize decides about the intent of an authorization.
func ForAuthorize(in Intent) Decision {
	switch in.Status {
	case RequiresCapture:
		if in.Held != in.Amount {
			return Decision{Act: Ask} // holding a part is neither
		}
		return Decision{Act: Finish}
	case Succeeded:
		// Somebody captured by hand. All of it is as good as held: the capture will find it. Nothing of it is a no. A part of
		// it is a question that only the undo may answer, which gives it back.
		switch {
		case in.Refunded == 0 && in.Captured == in.Amount:
			return Decision{Act: Finish}
		case in.Refunded >= in.Captured:
			return Decision{Act: Refuse, Reason: ReasonRefundedAtProvider}
		}
		return Decision{Act: Ask}
	case RequiresPaymentMethod:
		if in.Decline == "" {
			// It was made with a payment method, and has none any more: it can never be confirmed.
			return Decision{Act: Refuse, Reason: ReasonInvalidPaymentMethod}
		}
		return Decision{Act: Refuse, Reason: in.Decline}
	case RequiresConfirmation:
		return Decision{Act: Confirm}
	case RequiresAction:
		return Decision{Act: AwaitCustomer}
	case Canceled:
		return Decision{Act: Refuse, Reason: whyCanceled(in.Cancellation)}
	default:
		return Decision{Act: Ask}
	}
}

// ForCapture decides about the intent of a capture. A refusal leads to the undo, which deals with what is held or captured.
func ForCapture(in Intent) Decision {
	switch in.Status {
	case RequiresCapture:
		return Decision{Act: Capture}
	case Succeeded:
		switch {
		case in.Captured < in.Amount:
			return Decision{Act: Refuse, Reason: ReasonCapturedInPart}
		case in.Refunded > 0:
			return Decision{Act: Refuse, Reason: ReasonRefundedAtProvider}
		}
		return Decision{Act: Finish}
	case Canceled:
		return Decision{Act: Refuse, Reason: whyCanceled(in.Cancellation)}
	default:
		return Decision{Act: Ask}
	}
}

// ForVoid decides about an intent whose net money is to be zero. refunds are all refunds of the intent.
func ForVoid(in Intent, refunds []Refund) Decision {
	switch in.Status {
	case Canceled:
		return Decision{Act: Finish}
	case RequiresPaymentMethod, RequiresConfirmation, RequiresAction, RequiresCapture:
		// Also where no money is held: a cancelled intent is the fence against a confirmation that is still on its way.
		return Decision{Act: Cancel}
	case Succeeded:
		done, pending := Returned(refunds)
		switch {
		case in.Captured > done+pending:
			return Decision{Act: RefundRest}
		case pending > 0:
			return Decision{Act: AwaitRefund}
		}
		return Decision{Act: Finish}
	default:
		return Decision{Act: Ask}
	}
}

func whyCanceled(c Cancellation) string {
	switch c {
	case Abandoned:
		return ReasonAuthenticationRequired
	case Automatic, Expired:
		return ReasonAuthorizationExpired
	default:
		return ReasonCanceledAtProvider
	}
}
