package payment

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// apiError is the provider's error object.
type apiError struct {
	status int

	Type          string             `json:"type"`
	Code          string             `json:"code,omitempty"`
	DeclineCode   string             `json:"decline_code,omitempty"`
	Charge        string             `json:"charge,omitempty"`
	DocURL        string             `json:"doc_url,omitempty"`
	Message       string             `json:"message"`
	Param         string             `json:"param,omitempty"`
	PaymentIntent *intentJSON        `json:"payment_intent,omitempty"`
	PaymentMethod *paymentMethodJSON `json:"payment_method,omitempty"`
}

const (
	typeInvalidRequest = "invalid_request_error"
	typeCard           = "card_error"
	typeIdempotency    = "idempotency_error"
	typeAPI            = "api_error"
)

func docURL(code string) string {
	if code == "" {
		return ""
	}
	return "https://stripe.com/docs/error-codes/" + code
}

func invalidParam(param, code, message string) *apiError {
	return &apiError{
		status: http.StatusBadRequest, Type: typeInvalidRequest,
		Code: code, DocURL: docURL(code), Param: param, Message: message,
	}
}

func missingParam(param string) *apiError {
	return invalidParam(param, "parameter_missing", "Missing required param: "+param+".")
}

// noSuch is the error for an unknown object; 404 for the one in the path, 400
// for one named by a parameter.
func noSuch(status int, object, id, param string) *apiError {
	e := invalidParam(param, "resource_missing", fmt.Sprintf("No such %s: '%s'", object, id))
	e.status = status
	return e
}

// unexpectedState refuses an operation because of the intent's status; the
// intent is in the error, so that a client learns what is the case.
func unexpectedState(in *intent, message string) *apiError {
	e := invalidParam("", "payment_intent_unexpected_state", message)
	e.PaymentIntent = in.render(false)
	return e
}

// declined is the issuer's no.
func declined(in *intent, d *decline, pm string) *apiError {
	e := &apiError{
		status: http.StatusPaymentRequired, Type: typeCard,
		Code: d.code, DeclineCode: d.declineCode, DocURL: docURL(d.code), Message: d.message,
		PaymentMethod: renderMethod(pm),
	}
	if in.Charge != nil {
		e.Charge = in.Charge.ID
	}
	return e
}

func idempotencyError(status int, code, message string) *apiError {
	return &apiError{status: status, Type: typeIdempotency, Code: code, DocURL: docURL(code), Message: message}
}

func (e *apiError) body() []byte { return encode(map[string]*apiError{"error": e}) }

// encode renders an answer. Every type that goes through here is plain data,
// which cannot fail to encode.
func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		return []byte(`{"error":{"type":"api_error","message":"answer could not be encoded"}}`)
	}
	return body
}
