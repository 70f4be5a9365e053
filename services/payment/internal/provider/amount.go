package provider

import (
	"fmt"
	"strings"

	"github.com/throughline/throughline/pkg/money"
)

// The provider's convention is "the smallest unit of the currency", with exceptions
// (https://docs.stripe.com/currencies#minor-units). It has its own idea of some smallest units, so amounts are converted by the
// number of decimals on either side.
var (
	// noDecimals are the provider's zero-decimal currencies. MGA has two decimals in ISO 4217. ISK and UGX have none there, but
	// are sent with two for the sake of old integrations, and so are not in this list.
	noDecimals = words("BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF")

	// threeDecimals are sent in thousandths.
	threeDecimals = words("BHD IQD JOD KWD LYD OMR TND")

	// steps is what an amount must be a multiple of, where that is not 1: card networks take no thousandths of a three-decimal
	// currency below the tenth, and no fraction of a króna.
	steps = map[money.Currency]int64{
		"BHD": 10, "IQD": 10, "JOD": 10, "KWD": 10, "LYD": 10, "OMR": 10, "TND": 10, "ISK": 100, "UGX": 100,
	}
)

// maxAmount is the provider's: eight digits.
const maxAmount = 99_999_999

func words(s string) map[money.Currency]bool {
	set := make(map[money.Currency]bool)
	for _, w := range strings.Fields(s) {
		set[money.Currency(w)] = true
	}
	return set
}

func decimals(c money.Currency) int {
	switch {
	case noDecimals[c]:
		return 0
	case threeDecimals[c]:
		return 3
	default:
		return 2
	}
}

// toProvider gives an amount in the provider's convention, or [ErrAmount] where that cannot be said exactly. Nothing is rounded: a
// charge of other money than the order's is no charge for it.
func toProvider(m money.Money) (int64, error) {
	amount := m.Minor
	for d := m.Currency.Digits(); d < decimals(m.Currency); d++ {
		if amount > maxAmount {
			break
		}
		amount *= 10
	}
	for d := m.Currency.Digits(); d > decimals(m.Currency); d-- {
		if amount%10 != 0 {
			return 0, fmt.Errorf("%w: %s is not a whole number of the provider's units", ErrAmount, m)
		}
		amount /= 10
	}
	switch step := steps[m.Currency]; {
	case amount < 1 || amount > maxAmount:
		return 0, fmt.Errorf("%w: %s is not between 1 and %d units", ErrAmount, m, maxAmount)
	case step > 1 && amount%step != 0:
		return 0, fmt.Errorf("%w: %s is not a multiple of %d units", ErrAmount, m, step)
	}
	return amount, nil
}

// fromProvider gives an amount of the provider in minor units of the currency.
func fromProvider(c money.Currency, amount int64) (int64, error) {
	if amount < 0 || amount > maxAmount {
		return 0, fmt.Errorf("%w: %d units of %s", ErrAmount, amount, c)
	}
	for d := decimals(c); d < c.Digits(); d++ {
		amount *= 10
	}
	for d := decimals(c); d > c.Digits(); d-- {
		if amount%10 != 0 {
			return 0, fmt.Errorf("%w: %d units of %s are a fraction of the smallest unit", ErrAmount, amount, c)
		}
		amount /= 10
	}
	return amount, nil
}
