package money

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/bojanz/currency"
)

// MaxMinor is the greatest amount: 2^53-1, the last of the integers that a JSON
// reader with 64-bit floats keeps apart.
const MaxMinor int64 = 1<<53 - 1

// Currency is an ISO 4217 code in upper case, e.g. "EUR".
type Currency string

// ParseCurrency returns the currency with exactly this code. Lower case,
// surrounding blanks and codes that are no tender (XXX, XTS) give [ErrCurrency].
func ParseCurrency(code string) (Currency, error) {
	// The library calls the empty code valid, so GetDigits is asked instead.
	if _, ok := currency.GetDigits(code); !ok {
		return "", fmt.Errorf("%w: %q", ErrCurrency, code)
	}
	return Currency(code), nil
}

// Digits returns the number of decimals of the currency's major unit: 0 for JPY,
// 2 for EUR, 3 for KWD; 0 for a code that [ParseCurrency] refuses.
func (c Currency) Digits() int {
	d, _ := currency.GetDigits(string(c))
	return int(d)
}

// Digits returns the number of decimals of c, see [Currency.Digits].
func Digits(c Currency) int { return c.Digits() }

// Money is an amount in minor units of its currency. Values made by [New] and by
// the methods are in 0..MaxMinor; the zero value is no money in no currency.
type Money struct {
	Currency Currency
	Minor    int64
}

// New returns minor units of the currency with this code. The errors are
// [ErrCurrency], [ErrNegative] and [ErrLimit].
func New(code string, minor int64) (Money, error) {
	c, err := ParseCurrency(code)
	if err != nil {
		return Money{}, err
	}
	m := Money{Currency: c, Minor: minor}
	return m, m.check()
}

func (m Money) check() error {
	switch {
	case m.Minor < 0:
		return fmt.Errorf("%w: %d", ErrNegative, m.Minor)
	case m.Minor > MaxMinor:
		return fmt.Errorf("%w: %d", ErrLimit, m.Minor)
	}
	return nil
}

// IsZero reports whether the amount is 0, in whatever currency.
func (m Money) IsZero() bool { return m.Minor == 0 }

// Add returns m + n. The errors are [ErrMismatch] for different currencies,
// [ErrNegative] for an operand below zero and [ErrLimit].
func (m Money) Add(n Money) (Money, error) {
	if err := m.operands(n); err != nil {
		return Money{}, fmt.Errorf("adding %v and %v: %w", m, n, err)
	}
	// Both are at most 2^53-1, so the sum fits.
	sum := Money{Currency: m.Currency, Minor: m.Minor + n.Minor}
	if err := sum.check(); err != nil {
		return Money{}, fmt.Errorf("adding %v and %v: %w", m, n, err)
	}
	return sum, nil
}

// Sub returns m - n. The errors are those of Add; [ErrNegative] also when n is
// the greater one.
func (m Money) Sub(n Money) (Money, error) {
	if err := m.operands(n); err != nil {
		return Money{}, fmt.Errorf("subtracting %v from %v: %w", n, m, err)
	}
	diff := Money{Currency: m.Currency, Minor: m.Minor - n.Minor}
	if err := diff.check(); err != nil {
		return Money{}, fmt.Errorf("subtracting %v from %v: %w", n, m, err)
	}
	return diff, nil
}

// Mul returns m times quantity. The errors are [ErrNegative] for a negative
// operand and [ErrLimit].
func (m Money) Mul(quantity int64) (Money, error) {
	if err := m.check(); err != nil {
		return Money{}, fmt.Errorf("multiplying %v by %d: %w", m, quantity, err)
	}
	if quantity < 0 {
		return Money{}, fmt.Errorf("multiplying %v by %d: %w", m, quantity, ErrNegative)
	}
	// 128 bits: the product of two 63-bit numbers wraps in 64, sometimes to a small one.
	hi, lo := bits.Mul64(uint64(m.Minor), uint64(quantity))
	if hi != 0 || lo > uint64(MaxMinor) {
		return Money{}, fmt.Errorf("multiplying %v by %d: %w", m, quantity, ErrLimit)
	}
	return Money{Currency: m.Currency, Minor: int64(lo)}, nil
}

func (m Money) operands(n Money) error {
	if m.Currency != n.Currency {
		return ErrMismatch
	}
	if err := m.check(); err != nil {
		return err
	}
	return n.check()
}

// String returns the amount in major units for people: "12.50 EUR", "500 JPY",
// "1.500 KWD". It is never parsed back.
func (m Money) String() string {
	s := strconv.FormatInt(m.Minor, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	if d := m.Currency.Digits(); d > 0 {
		if pad := d + 1 - len(s); pad > 0 {
			s = strings.Repeat("0", pad) + s
		}
		s = s[:len(s)-d] + "." + s[len(s)-d:]
	}
	if m.Currency == "" {
		return sign + s
	}
	return sign + s + " " + string(m.Currency)
}
