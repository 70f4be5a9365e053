package openapi

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// Terms are the promises in the document that operators can set. The committed document has those of [DefaultTerms]; a gateway serves it
// with its own, see [Terms.YAML].
type Terms struct {
	// KeyLifetime is how long the first answer to a key is kept and given again.
	KeyLifetime time.Duration
	// InProgressWait is how long a call waits for another one with the same key before it is told to come back.
	InProgressWait time.Duration
	// CallTimeout is when a call that has no answer yet is answered with 503 or 504.
	CallTimeout time.Duration
	// ClientRate and ClientBurst are how often a client may call one gateway: a second in the long run, and at once. There is no limit
	// when the rate is negative.
	ClientRate  float64
	ClientBurst int
}

// DefaultTerms are those of services that are told nothing.
func DefaultTerms() Terms {
	return Terms{
		KeyLifetime: 24 * time.Hour, InProgressWait: 2 * time.Second, CallTimeout: 10 * time.Second, ClientRate: 2000, ClientBurst: 4000,
	}
}

// Member is the member of the document's info object that has the terms for programs, see [Terms.Numbers].
const Member = "x-throughline-terms"

// Numbers are the terms for programs, by name. A limit that there is not is -1.
func (t Terms) Numbers() map[string]float64 {
	rate, burst := t.ClientRate, float64(t.ClientBurst)
	if t.ClientRate < 0 {
		rate, burst = -1, -1
	}
	return map[string]float64{
		"key_lifetime_seconds":    t.KeyLifetime.Seconds(),
		"in_progress_wait_millis": float64(t.InProgressWait.Milliseconds()),
		"call_timeout_millis":     float64(t.CallTimeout.Milliseconds()),
		"client_calls_per_second": rate,
		"client_calls_at_once":    burst,
	}
}

// Words are the same for people: what the text of the document has of each, by the same names, the two about calls in one.
func (t Terms) Words() map[string]string {
	calls := fmt.Sprintf("A client may make %s calls a second of one gateway in the long run and %d at once; beyond that it gets 429 with Retry-After.",
		digits(t.ClientRate), t.ClientBurst)
	if t.ClientRate < 0 {
		calls = "How often a client calls is not limited."
	}
	return map[string]string{
		"key_lifetime_seconds":    "Stored answers are kept for " + words(t.KeyLifetime) + ".",
		"in_progress_wait_millis": "the others wait for it, at most about " + words(t.InProgressWait) + ",",
		"call_timeout_millis":     "A call that does not ask to wait is answered within about " + words(t.CallTimeout) + ", with 503 or 504 if nothing better is known.",
		"client_calls_per_second": calls,
	}
}

// YAML is the document with these terms.
func (t Terms) YAML() []byte {
	doc := t.inText(YAML)
	ours, defaults := t.Numbers(), DefaultTerms().Numbers()
	for name, n := range defaults {
		doc = bytes.Replace(doc, line(name, n), line(name, ours[name]), 1)
	}
	return doc
}

// HTML is the page with these terms.
func (t Terms) HTML() []byte { return t.inText(HTML) }

func (t Terms) inText(doc []byte) []byte {
	ours := t.Words()
	for name, text := range DefaultTerms().Words() {
		doc = bytes.Replace(doc, []byte(text), []byte(ours[name]), 1)
	}
	return doc
}

func line(name string, n float64) []byte { return []byte("\n    " + name + ": " + digits(n) + "\n") }

func digits(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// words writes a duration in the largest unit that needs no fraction.
func words(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if n := d / u.unit; d%u.unit == 0 && n > 0 {
			if n == 1 {
				return "1 " + u.name
			}
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}
