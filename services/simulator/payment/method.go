package payment

import "strings"

// CaptureDeclined is the one payment method that the real provider does not
// have: its authorization succeeds, its capture is refused for good.
const CaptureDeclined = "pm_sim_captureDeclined"

// A method is what a test payment method does.
type method struct {
	brand          string
	authenticate   bool     // requires_action before the charge
	decline        *decline // of the charge
	captureDecline *decline
	refundBegins   string // status a refund is created with
	refundEnds     string // status it has RefundDelay later
}

// A decline is the issuer's no. declineCode is empty where the published
// tables have none.
type decline struct {
	code, declineCode, message string
}

var (
	declinedGeneric      = &decline{"card_declined", "generic_decline", "Your card was declined."}
	declinedInsufficient = &decline{"card_declined", "insufficient_funds", "Your card has insufficient funds."}
	declinedFraudulent   = &decline{"card_declined", "fraudulent", "Your card was declined."}
	declinedHonor        = &decline{"card_declined", "do_not_honor", "Your card was declined."}
)

// authenticationNeeded is the answer to an off-session charge of a card whose
// holder has to be present.
var authenticationNeeded = &decline{
	"authentication_required", "authentication_required",
	"Your card was declined. This transaction requires authentication.",
}

// authenticationFailed is what the intent shows after the customer failed.
var authenticationFailed = &decline{
	"payment_intent_authentication_failure", "",
	"The provided PaymentMethod has failed authentication. You can provide payment_method_data or a new PaymentMethod to attempt to fulfill this PaymentIntent again.",
}

// brands are the published methods that simply succeed.
var brands = []string{
	"visa", "visa_debit", "mastercard", "mastercard_debit", "mastercard_prepaid",
	"amex", "discover", "diners", "jcb", "unionpay",
	"us", "de", "fr", "gb", "nl", "it", "es", "jp", "ca", "au",
	"bypassPending", "threeDSecureOptional",
}

// declines are the published declines by what follows pm_card_chargeDeclined.
var declines = map[string]*decline{
	"":                      declinedGeneric,
	"InsufficientFunds":     declinedInsufficient,
	"LostCard":              {"card_declined", "lost_card", "Your card was declined."},
	"StolenCard":            {"card_declined", "stolen_card", "Your card was declined."},
	"VelocityLimitExceeded": {"card_declined", "card_velocity_exceeded", "Your card was declined for making repeated attempts too frequently or exceeding its amount limit."},
	"Fraudulent":            declinedFraudulent,
	"ExpiredCard":           {"expired_card", "", "Your card has expired."},
	"IncorrectCvc":          {"incorrect_cvc", "", "Your card's security code is incorrect."},
	"ProcessingError":       {"processing_error", "", "An error occurred while processing your card. Try again in a little bit."},
}

// special are the remaining ones.
var special = map[string]method{
	"pm_card_chargeCustomerFail":                                    {decline: declinedGeneric},
	"pm_card_radarBlock":                                            {decline: declinedFraudulent},
	"pm_card_authenticationRequired":                                {authenticate: true},
	"pm_card_authenticationRequiredOnSetup":                         {authenticate: true},
	"pm_card_threeDSecure2Required":                                 {authenticate: true},
	"pm_card_threeDSecureRequired":                                  {authenticate: true},
	"pm_card_threeDSecureRequiredChargeDeclined":                    {authenticate: true, decline: declinedGeneric},
	"pm_card_authenticationRequiredChargeDeclinedInsufficientFunds": {authenticate: true, decline: declinedInsufficient},
	"pm_card_pendingRefund":                                         {refundBegins: "pending", refundEnds: "succeeded"},
	"pm_card_refundFail":                                            {refundBegins: "succeeded", refundEnds: "failed"},
	CaptureDeclined:                                                 {captureDecline: declinedHonor},
}

// lookupMethod finds a payment method by its published name.
func lookupMethod(id string) (method, bool) {
	if m, ok := special[id]; ok {
		m.brand = "visa"
		return m, true
	}
	name, ok := strings.CutPrefix(id, "pm_card_")
	if !ok {
		return method{}, false
	}
	for _, brand := range brands {
		if name == brand {
			brand, _, _ = strings.Cut(brand, "_")
			if len(brand) == 2 { // a country's card
				brand = "visa"
			}
			return method{brand: brand}, true
		}
	}
	suffix, ok := strings.CutPrefix(strings.TrimPrefix(name, "visa_"), "chargeDeclined")
	if d := declines[suffix]; ok && d != nil {
		return method{brand: "visa", decline: d}, true
	}
	return method{}, false
}
