package money

import "errors"

var (
	// ErrCurrency: not the upper-case ISO 4217 code of a tender.
	ErrCurrency = errors.New("unknown currency")
	// ErrMismatch: two amounts in different currencies.
	ErrMismatch = errors.New("currencies differ")
	// ErrNegative: an amount or quantity below zero.
	ErrNegative = errors.New("amount is negative")
	// ErrLimit: an amount above [MaxMinor].
	ErrLimit = errors.New("amount is above 2^53-1 minor units")
)
