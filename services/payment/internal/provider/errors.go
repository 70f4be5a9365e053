package provider

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/stripe/stripe-go/v82"

	"github.com/throughline/throughline/services/payment/internal/payment"
)

var (
	// ErrNotOurs says that an object is of another order, or about other money, than was asked about.
	ErrNotOurs = errors.New("the provider's object does not belong to this order")

	// ErrAmount says that an amount cannot be expressed in the provider's convention for its currency.
	ErrAmount = errors.New("the provider does not take this amount")

	// ErrConfiguration says that the provider does not know us, or does not let us: the key is wrong.
	ErrConfiguration = errors.New("the provider refuses our key")
)

// maxText bounds what is kept of a provider's text: enough to recognise a page of a proxy.
const maxText = 300

// Error is an answer of the provider that is not a success, or that there was none.
type Error struct {
	Operation string
	// Status is the HTTP status; 0 if no answer came, or none that could be read.
	Status int
	Code   string
	// Replayed says that the provider repeated a stored error: the request that it was about is over.
	Replayed bool
	// Intent is the intent as the error shows it, if it does.
	Intent *payment.Intent

	// reason is the stable word of a definite no.
	reason string
	// text is what the provider or the transport said, made safe to store.
	text  string
	cause error
}

func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("%s: %s", e.Operation, e.text)
	}
	return fmt.Sprintf("%s: status %s: %s", e.Operation, strings.TrimSpace(strconv.Itoa(e.Status)+" "+e.Code), e.text)
}

// Unwrap gives the cause: a context's error, say.
func (e *Error) Unwrap() error { return e.cause }

// Refusal tells whether err is the provider's definite no to this very request, and the stable word for it.
func Refusal(err error) (reason string, ok bool) {
	if e, is := errors.AsType[*Error](err); is && e.reason != "" {
		return e.reason, true
	}
	return "", false
}

// Replayed tells whether err is a stored error that the provider repeated. The request that it was first given to is over, and
// will have no effect any more beyond what a retrieve shows.
func Replayed(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Replayed
}

// fail makes the error of an operation.
func (p *Payment) fail(operation string, err error) error {
	e := failure(operation, err)
	if answer, ok := errors.AsType[*stripe.Error](err); ok && answer.PaymentIntent != nil {
		if in, err := p.intent(answer.PaymentIntent); err == nil {
			in.Replayed = e.Replayed
			e.Intent = &in
		}
	}
	return e
}

// failure makes the error of an operation that is not about one order, or before what it shows of the order is read.
func failure(operation string, err error) *Error {
	e := &Error{Operation: operation, text: safe(err.Error()), cause: err}
	answer, ok := errors.AsType[*stripe.Error](err)
	if !ok {
		return e
	}
	e.Status, e.Code, e.text = answer.HTTPStatusCode, safe(string(answer.Code)), safe(answer.Msg)
	if answer.LastResponse != nil {
		e.Replayed = replayed(answer.LastResponse)
	}
	if reusable(operation) && answer.Type == stripe.ErrorTypeIdempotency && answer.HTTPStatusCode == http.StatusBadRequest {
		// With 400, and not 409, which says that the key is being worked on: something else went under the key, which is used up.
		e.Replayed = true
	}
	e.reason = refusal(operation, answer)
	switch answer.HTTPStatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		e.cause = errors.Join(ErrConfiguration, err)
	}
	return e
}

// reusable tells whether an operation may go under another key when its key was used for something else: a confirmation with another return
// URL, or the undo of another intent of the order. What came of it the intent tells, which is asked first; and each of these has its effect once,
// by whichever request is first.
func reusable(operation string) bool {
	return operation == opConfirm || operation == opCancel || operation == opRefund
}

// safe makes a text of the outside fit for logs and for a text column: bounded, valid and without NUL.
func safe(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// refusal gives the stable word of a definite no, or nothing. The request that is answered so had no effect, and will have none.
func refusal(operation string, e *stripe.Error) string {
	switch {
	case e.HTTPStatusCode == http.StatusPaymentRequired && e.Type == stripe.ErrorTypeCard:
		return declineReason(e.Code, e.DeclineCode)
	case e.HTTPStatusCode != http.StatusBadRequest || e.Type != stripe.ErrorTypeInvalidRequest:
		return ""
	case e.Code == stripe.ErrorCodePaymentIntentUnexpectedState:
		return "" // it tells of another request's effect
	case e.Code == stripe.ErrorCodeResourceMissing && e.Param == "payment_method":
		return payment.ReasonInvalidPaymentMethod
	}
	switch operation {
	case opCreate:
		switch {
		case e.Code == stripe.ErrorCodeAmountTooLarge, e.Code == stripe.ErrorCodeAmountTooSmall, e.Param == "amount":
			return payment.ReasonAmountNotAccepted
		case e.Param == "currency":
			return payment.ReasonCurrencyNotAccepted
		}
		return payment.ReasonRejected
	case opCapture:
		if e.Code == stripe.ErrorCodeChargeExpiredForCapture {
			return payment.ReasonAuthorizationExpired
		}
	case opRefund:
		switch e.Code {
		case stripe.ErrorCodeChargeDisputed, stripe.ErrorCodeRefundDisputedPayment:
			return payment.ReasonChargeDisputed
		case stripe.ErrorCodeChargeAlreadyRefunded, stripe.ErrorCodeResourceMissing:
			return "" // the list of refunds tells
		case stripe.ErrorCodeBalanceInsufficient, stripe.ErrorCodeInsufficientFunds:
			return "" // our own balance, which fills again
		}
		return payment.ReasonRefundRefused
	}
	return ""
}

// declineReason turns the provider's codes into our words.
func declineReason(code stripe.ErrorCode, decline stripe.DeclineCode) string {
	switch code {
	case stripe.ErrorCodeExpiredCard:
		return payment.ReasonExpiredCard
	case stripe.ErrorCodeIncorrectCVC, stripe.ErrorCodeInvalidCVC:
		return payment.ReasonIncorrectCVC
	case stripe.ErrorCodeIncorrectNumber, stripe.ErrorCodeInvalidNumber:
		return payment.ReasonIncorrectNumber
	case stripe.ErrorCodeProcessingError:
		return payment.ReasonProcessingError
	case stripe.ErrorCodeAuthenticationRequired:
		return payment.ReasonAuthenticationRequired
	case stripe.ErrorCodePaymentIntentAuthenticationFailure:
		return payment.ReasonAuthenticationFailed
	}
	switch decline {
	case stripe.DeclineCodeInsufficientFunds:
		return payment.ReasonInsufficientFunds
	case stripe.DeclineCodeExpiredCard:
		return payment.ReasonExpiredCard
	case stripe.DeclineCodeIncorrectCVC, stripe.DeclineCodeInvalidCVC:
		return payment.ReasonIncorrectCVC
	case stripe.DeclineCodeAuthenticationRequired:
		return payment.ReasonAuthenticationRequired
	case stripe.DeclineCodeProcessingError:
		return payment.ReasonProcessingError
	}
	return payment.ReasonCardDeclined
}
