// Package money holds amounts as whole minor units of an ISO 4217 currency.
//
// There are no fractions and no conversions: 500 means 500 yen (no decimals),
// 5.00 euros (two) or 0.500 Kuwaiti dinars (three), and goes to a provider as it
// is. How many decimals a currency has matters only when a person reads it.
//
// Amounts are never negative and never above [MaxMinor], the greatest integer
// that every JSON reader keeps exactly. Arithmetic that would leave that range
// is an error, never a wrap-around.
package money
