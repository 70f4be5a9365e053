package provider_test

import (
	"errors"
	"testing"

	"github.com/throughline/throughline/pkg/money"
	"github.com/throughline/throughline/services/payment/internal/provider"
)

func TestAmounts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		currency    money.Currency
		minor, want int64 // want 0: refused
	}{
		"two decimals":                        {"EUR", 2500, 2500},
		"one cent":                            {"USD", 1, 1},
		"no decimals":                         {"JPY", 500, 500},
		"three decimals":                      {"KWD", 1500, 1500},
		"three decimals, last not 0":          {"KWD", 1505, 0},
		"BHD like KWD":                        {"BHD", 10, 10},
		"ISK has none, and is sent with two":  {"ISK", 500, 50000},
		"UGX too":                             {"UGX", 7, 700},
		"MGA has two, and is sent with none":  {"MGA", 500, 5},
		"MGA that is no whole one":            {"MGA", 550, 0},
		"HUF has two, though payouts do not":  {"HUF", 1045, 1045},
		"TWD too":                             {"TWD", 80045, 80045},
		"nothing":                             {"EUR", 0, 0},
		"below nothing":                       {"EUR", -1, 0},
		"the most":                            {"EUR", 99_999_999, 99_999_999},
		"more than the most":                  {"EUR", 100_000_000, 0},
		"more than the most when sent":        {"ISK", 1_000_000, 0},
		"what would overflow when multiplied": {"ISK", money.MaxMinor * 1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := provider.ToProvider(money.Money{Currency: tt.currency, Minor: tt.minor})
			if tt.want == 0 {
				if !errors.Is(err, provider.ErrAmount) {
					t.Fatalf("got %d, %v, want %v", got, err, provider.ErrAmount)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Fatalf("to the provider: got %d, %v, want %d", got, err, tt.want)
			}
			if back, err := provider.FromProvider(tt.currency, got); err != nil || back != tt.minor {
				t.Errorf("and back: got %d, %v, want %d", back, err, tt.minor)
			}
		})
	}
}
