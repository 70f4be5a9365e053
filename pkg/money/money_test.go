package money_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/throughline/throughline/pkg/money"
)

func must(t *testing.T, code string, minor int64) money.Money {
	t.Helper()
	m, err := money.New(code, minor)
	if err != nil {
		t.Fatalf("making %d %s: %v", minor, code, err)
	}
	return m
}

func TestParseCurrency(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		code   string
		digits int
	}{{"JPY", 0}, {"KRW", 0}, {"EUR", 2}, {"USD", 2}, {"KWD", 3}, {"BHD", 3}} {
		t.Run(tc.code, func(t *testing.T) {
			t.Parallel()
			c, err := money.ParseCurrency(tc.code)
			if err != nil || string(c) != tc.code {
				t.Fatalf("got %q, %v, want %s", c, err, tc.code)
			}
			if got := money.Digits(c); got != tc.digits {
				t.Errorf("got %d digits, want %d", got, tc.digits)
			}
		})
	}
	for _, code := range []string{"", "eur", "Eur", " EUR", "EUR ", "XXX", "XTS", "ZZZ", "EURO", "978", "€", "EU\x00"} {
		t.Run(fmt.Sprintf("refused %q", code), func(t *testing.T) {
			t.Parallel()
			if c, err := money.ParseCurrency(code); !errors.Is(err, money.ErrCurrency) || c != "" {
				t.Errorf("got %q, %v, want %v", c, err, money.ErrCurrency)
			}
		})
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		code  string
		minor int64
		err   error
	}{
		{"zero", "EUR", 0, nil},
		{"greatest", "EUR", money.MaxMinor, nil},
		{"above the limit", "EUR", money.MaxMinor + 1, money.ErrLimit},
		{"negative", "EUR", -1, money.ErrNegative},
		{"lower case", "eur", 1, money.ErrCurrency},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if _, err := money.New(tc.code, tc.minor); !errors.Is(err, tc.err) {
				t.Errorf("got %v, want %v", err, tc.err)
			}
		})
	}
}

func TestArithmetic(t *testing.T) {
	t.Parallel()
	eur := func(n int64) money.Money { return money.Money{Currency: "EUR", Minor: n} }
	jpy := func(n int64) money.Money { return money.Money{Currency: "JPY", Minor: n} }
	mul := func(m money.Money, q int64) func() (money.Money, error) {
		return func() (money.Money, error) { return m.Mul(q) }
	}
	add := func(m, n money.Money) func() (money.Money, error) {
		return func() (money.Money, error) { return m.Add(n) }
	}
	sub := func(m, n money.Money) func() (money.Money, error) {
		return func() (money.Money, error) { return m.Sub(n) }
	}
	for _, tc := range []struct {
		name string
		do   func() (money.Money, error)
		want money.Money
		err  error
	}{
		{"times two", mul(eur(1250), 2), eur(2500), nil},
		{"times none", mul(eur(1250), 0), eur(0), nil},
		{"no decimals", mul(jpy(500), 3), jpy(1500), nil},
		{"times up to the limit", mul(eur(1), money.MaxMinor), eur(money.MaxMinor), nil},
		{"times past the limit", mul(eur(2), money.MaxMinor/2+1), money.Money{}, money.ErrLimit},
		// 2^32 · 2^32 is 0 in 64 bits.
		{"times wraps to zero", mul(eur(1<<32), 1<<32), money.Money{}, money.ErrLimit},
		{"times wraps to one", mul(eur(0x1_0000_0001), math.MaxInt64), money.Money{}, money.ErrLimit},
		{"times a negative", mul(eur(1), -1), money.Money{}, money.ErrNegative},
		{"a negative times", mul(eur(-1), 1), money.Money{}, money.ErrNegative},
		{"sum", add(eur(1), eur(2)), eur(3), nil},
		{"sum up to the limit", add(eur(money.MaxMinor-1), eur(1)), eur(money.MaxMinor), nil},
		{"sum past the limit", add(eur(money.MaxMinor), eur(1)), money.Money{}, money.ErrLimit},
		{"sum that would wrap", add(eur(math.MaxInt64), eur(math.MaxInt64)), money.Money{}, money.ErrLimit},
		{"sum of two currencies", add(eur(1), jpy(1)), money.Money{}, money.ErrMismatch},
		{"sum hides a negative", add(eur(5), eur(-3)), money.Money{}, money.ErrNegative},
		{"difference", sub(eur(3), eur(1)), eur(2), nil},
		{"difference of equals", sub(eur(3), eur(3)), eur(0), nil},
		{"difference below zero", sub(eur(1), eur(3)), money.Money{}, money.ErrNegative},
		{"difference of two currencies", sub(eur(1), jpy(1)), money.Money{}, money.ErrMismatch},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.do()
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("got %v, %v, want %v, %v", got, err, tc.want, tc.err)
			}
		})
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]money.Money{
		"500 JPY":                must(t, "JPY", 500),
		"0 JPY":                  must(t, "JPY", 0),
		"25.00 EUR":              must(t, "EUR", 2500),
		"0.05 EUR":               must(t, "EUR", 5),
		"0.00 EUR":               must(t, "EUR", 0),
		"1.500 KWD":              must(t, "KWD", 1500),
		"0.001 KWD":              must(t, "KWD", 1),
		"90071992547409.91 EUR":  must(t, "EUR", money.MaxMinor),
		"-0.05 EUR":              {Currency: "EUR", Minor: -5},
		"7":                      {Minor: 7},
		"-9223372036854775808 ?": {Currency: "?", Minor: math.MinInt64}, // no decimals are known
	} {
		if got := m.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func Example() {
	unit, err := money.New("EUR", 1250)
	if err != nil {
		fmt.Println(err)
		return
	}
	total, err := unit.Mul(2)
	fmt.Println(total, err)

	_, err = total.Add(money.Money{Currency: "JPY", Minor: 500})
	fmt.Println(err)
	// Output:
	// 25.00 EUR <nil>
	// adding 25.00 EUR and 500 JPY: currencies differ
}
