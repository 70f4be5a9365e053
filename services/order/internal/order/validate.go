package order

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/throughline/throughline/pkg/money"
)

// Limits of a request. With all of them used up it stays below the limit of a message on the broker.
const (
	MaxLines         = 200
	MaxSKU           = 64 // characters, as all lengths of text
	MaxQuantity      = 1_000_000
	MaxAddressText   = 200
	MaxPostalCode    = 20
	MaxPaymentMethod = 255
	MaxNote          = 2000
	MaxMetadata      = 20 // entries
	MaxMetadataKey   = 40
	MaxMetadataValue = 500
	MaxCancelReason  = 500
)

// Rules check requests. Country says whether a code is of a country, in exactly this form.
type Rules struct {
	Country func(code string) bool
}

// Check gives the total of a request and what is wrong with it, in the order of its members. The total counts only if nothing is
// wrong. All prices are in minor units of the currency, so a yen has no decimals here and a dinar has three.
func (r Rules) Check(req *Request) (money.Money, []Violation) {
	c := &checker{}
	if _, err := money.ParseCurrency(req.Currency); err != nil {
		c.fail("currency", "must be an ISO 4217 code in upper case")
	}
	total := c.lines(req)
	c.address(req.ShipTo, r.Country)
	c.text("payment_method", req.PaymentMethod, 1, MaxPaymentMethod)
	c.text("note", req.Note, 0, MaxNote)
	c.metadata(req.Metadata)
	return total, c.violations
}

// CheckReason checks the reason that a client gives for a cancellation.
func CheckReason(reason string) []Violation {
	c := &checker{}
	c.text("reason", reason, 0, MaxCancelReason)
	return c.violations
}

type checker struct{ violations []Violation }

func (c *checker) fail(path, detail string) {
	c.violations = append(c.violations, Violation{path, detail})
}

func (c *checker) lines(req *Request) money.Money {
	// The currency is checked elsewhere; sums need only be in one.
	sum := money.Money{Currency: money.Currency(req.Currency)}
	switch n := len(req.Lines); {
	case n == 0:
		c.fail("lines", "must have at least one line")
		return sum
	case n > MaxLines:
		c.fail("lines", fmt.Sprintf("must have at most %d lines", MaxLines))
		return sum
	}
	valid := true
	for i, l := range req.Lines {
		at := "lines[" + strconv.Itoa(i) + "]."
		before := len(c.violations)
		c.text(at+"sku", l.SKU, 1, MaxSKU)
		if l.Quantity < 1 || l.Quantity > MaxQuantity {
			c.fail(at+"quantity", fmt.Sprintf("must be from 1 to %d", MaxQuantity))
		}
		if l.UnitPrice < 0 || l.UnitPrice > money.MaxMinor {
			c.fail(at+"unit_price", fmt.Sprintf("must be from 0 to %d", money.MaxMinor))
		}
		if len(c.violations) > before {
			valid = false
			continue
		}
		price := money.Money{Currency: sum.Currency, Minor: l.UnitPrice}
		amount, err := price.Mul(l.Quantity)
		if err == nil && valid {
			sum, err = sum.Add(amount)
		}
		if errors.Is(err, money.ErrLimit) {
			c.fail("lines", fmt.Sprintf("the total must be at most %d", money.MaxMinor))
			return sum
		}
	}
	if valid && sum.IsZero() {
		c.fail("lines", "the total must be above 0")
	}
	return sum
}

func (c *checker) address(a *Address, country func(string) bool) {
	if a == nil {
		c.fail("ship_to", "is required")
		return
	}
	c.text("ship_to.name", a.Name, 1, MaxAddressText)
	c.text("ship_to.line1", a.Line1, 1, MaxAddressText)
	c.text("ship_to.line2", a.Line2, 0, MaxAddressText)
	c.text("ship_to.city", a.City, 1, MaxAddressText)
	c.text("ship_to.region", a.Region, 0, MaxAddressText)
	c.text("ship_to.postal_code", a.PostalCode, 0, MaxPostalCode) // not every country has them
	if !country(a.Country) {
		c.fail("ship_to.country", "must be an ISO 3166-1 alpha-2 code in upper case")
	}
}

func (c *checker) metadata(m map[string]string) {
	if len(m) > MaxMetadata {
		c.fail("metadata", fmt.Sprintf("must have at most %d entries", MaxMetadata))
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if n := utf8.RuneCountInString(k); n < 1 || n > MaxMetadataKey || !sound(k) {
			c.fail("metadata", fmt.Sprintf("keys must have 1 to %d characters, none of them NUL", MaxMetadataKey))
			continue
		}
		c.text("metadata["+strconv.Quote(k)+"]", m[k], 0, MaxMetadataValue)
	}
}

// text checks the length of a text in characters. Text that only consists of blanks counts as empty.
func (c *checker) text(path, s string, least, most int) {
	switch n := utf8.RuneCountInString(s); {
	case !sound(s):
		c.fail(path, "must be UTF-8 without NUL characters")
	case least > 0 && strings.TrimSpace(s) == "":
		c.fail(path, "is required")
	case n > most:
		c.fail(path, fmt.Sprintf("must have at most %d characters", most))
	}
}

// sound tells whether a text can be stored: Postgres takes neither NUL nor what is not UTF-8.
func sound(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
