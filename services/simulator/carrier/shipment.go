package carrier

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Statuses of a shipment.
const (
	Created    = "created"
	Dispatched = "dispatched"
	Cancelled  = "cancelled"
	Lost       = "lost"
)

// Error codes.
const (
	CodeInvalidRequest    = "invalid_request"
	CodeUnauthorized      = "unauthorized"
	CodeNotFound          = "not_found"
	CodeAlreadyDispatched = "already_dispatched"
	CodeCancelled         = "cancelled"
	CodeLost              = "lost"
	CodeAddressRefused    = "address_refused"
	CodeInternal          = "internal"
)

// Request asks for a shipment. Reference, Name, Line1, City and Country (two
// capital letters) are required.
type Request struct {
	Reference  string `json:"reference"`
	OrderID    string `json:"order_id"`
	Name       string `json:"name"`
	Line1      string `json:"line1"`
	Line2      string `json:"line2,omitempty"`
	City       string `json:"city"`
	Region     string `json:"region,omitempty"`
	PostalCode string `json:"postal_code"`
	Country    string `json:"country"`
	Items      []Item `json:"items"`
}

// Item is what is in the parcel.
type Item struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// Shipment is a shipment as the carrier answers it: the request, and what has
// become of it.
type Shipment struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Request
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// apiError is a refusal.
type apiError struct {
	status        int
	code, message string
}

func (e *apiError) body() []byte {
	return encode(map[string]any{"error": map[string]string{"code": e.code, "message": e.message}})
}

// encode renders an answer; only plain data comes here, which cannot fail.
func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		return []byte(`{"error":{"code":"internal","message":"answer could not be encoded"}}`)
	}
	return body
}

func invalid(message string) *apiError {
	return &apiError{http.StatusBadRequest, CodeInvalidRequest, message}
}

// refusedCountries are two that no carrier of ours goes to.
var refusedCountries = []string{"KP", "AQ"}

// check refuses what is incomplete and where the carrier does not go.
func (r *Request) check() *apiError {
	for _, f := range []struct{ name, value string }{
		{"reference", r.Reference}, {"name", r.Name}, {"line1", r.Line1}, {"city", r.City}, {"country", r.Country},
	} {
		if strings.TrimSpace(f.value) == "" {
			return invalid(f.name + " is missing")
		}
	}
	if len(r.Country) != 2 || strings.ToUpper(r.Country) != r.Country {
		return invalid("country must be two capital letters")
	}
	for i, item := range r.Items {
		if item.SKU == "" || item.Quantity < 1 {
			return invalid(fmt.Sprintf("items[%d] needs a sku and a quantity of at least 1", i))
		}
	}
	refuse := func(message string) *apiError {
		return &apiError{http.StatusUnprocessableEntity, CodeAddressRefused, message}
	}
	switch {
	case r.PostalCode == "00000":
		return refuse("there is no delivery to postal code 00000")
	case slices.Contains(refusedCountries, r.Country):
		return refuse("there is no delivery to country " + r.Country)
	case strings.HasPrefix(strings.ToLower(strings.TrimSpace(r.Line1)), "po box"):
		return refuse("there is no delivery to a PO box")
	}
	return nil
}

// cancel and dispatch report whether they changed anything.

func (s *Shipment) cancel(now time.Time) (bool, *apiError) {
	switch s.Status {
	case Created:
		s.Status, s.UpdatedAt = Cancelled, now
		return true, nil
	case Cancelled:
		return false, nil
	case Dispatched:
		return false, s.conflict(CodeAlreadyDispatched, "has been dispatched and cannot be cancelled")
	}
	return false, s.conflict(CodeLost, "is lost")
}

func (s *Shipment) dispatch(now time.Time) (bool, *apiError) {
	switch s.Status {
	case Created:
		s.Status, s.UpdatedAt = Dispatched, now
		return true, nil
	case Dispatched:
		return false, nil
	case Cancelled:
		return false, s.conflict(CodeCancelled, "has been cancelled and cannot be dispatched")
	}
	return false, s.conflict(CodeLost, "is lost")
}

func (s *Shipment) conflict(code, what string) *apiError {
	return &apiError{http.StatusConflict, code, "shipment " + s.ID + " " + what}
}

// lose is what happens to a parcel on its way, or on the shelf.
func (s *Shipment) lose(now time.Time) bool {
	if s.Status != Created && s.Status != Dispatched {
		return false
	}
	s.Status, s.UpdatedAt = Lost, now
	return true
}
