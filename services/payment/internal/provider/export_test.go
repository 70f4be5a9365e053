package provider

import "net/http"

// What tests look at from outside.
var (
	ToProvider   = toProvider
	FromProvider = fromProvider
)

// Once is the round tripper that keeps net/http from repeating writes.
func Once(base http.RoundTripper) http.RoundTripper { return once{base} }
