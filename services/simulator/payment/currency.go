package payment

import (
	"fmt"
	"strings"
)

// maxAmount is the provider's eight digits.
const maxAmount = 99_999_999

// currencies that the provider takes for cards, lower case as on its wire.
var currencies = func() map[string]bool {
	set := map[string]bool{}
	for _, c := range strings.Fields(`
		usd aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bhd bif bmd bnd bob brl bsd bwp byn
		bzd cad cdf chf clp cny cop crc cve czk djf dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gnf
		gtq gyd hkd hnl htg huf idr ils inr isk jmd jod jpy kes kgs khr kmf krw kwd kyd kzt lak lbp lkr
		lrd lsl mad mdl mga mkd mmk mnt mop mur mvr mwk mxn myr mzn nad ngn nio nok npr nzd omr pab pen
		pgk php pkr pln pyg qar ron rsd rub rwf sar sbd scr sek sgd shp sle sos srd std szl thb tjs tnd
		top try ttd twd tzs uah ugx uyu uzs vnd vuv wst xaf xcd xcg xof xpf yer zar zmw`) {
		set[c] = true
	}
	return set
}()

// granularity is what an amount must be a multiple of, where that is not 1.
var granularity = map[string]int64{
	// three decimals, of which the last must be 0
	"bhd": 10, "jod": 10, "kwd": 10, "omr": 10, "tnd": 10,
	// no decimals, sent with two that must be 0
	"isk": 100, "ugx": 100,
}

// checkAmount checks an amount against its (valid) currency.
func checkAmount(amount int64, currency string) *apiError {
	if amount < 1 {
		return invalidParam("amount", "parameter_invalid_integer", "This value must be greater than or equal to 1.")
	}
	if amount > maxAmount {
		return invalidParam("amount", "amount_too_large", fmt.Sprintf("Amount must be no more than %d.", maxAmount))
	}
	if g := granularity[currency]; g > 1 && amount%g != 0 {
		return invalidParam("amount", "parameter_invalid_integer",
			fmt.Sprintf("Invalid amount: in %s it must be a multiple of %d.", currency, g))
	}
	return nil
}
