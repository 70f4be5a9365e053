package openapi_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/throughline/throughline/proto/openapi"
)

func TestDefaultTermsAreTheCommittedDocument(t *testing.T) {
	t.Parallel()
	d := openapi.DefaultTerms()
	if !bytes.Equal(d.YAML(), openapi.YAML) || !bytes.Equal(d.HTML(), openapi.HTML) {
		t.Error("the default terms change the documents")
	}
	for name, text := range d.Words() {
		for kind, doc := range map[string][]byte{"openapi.yaml": openapi.YAML, "reference.html": openapi.HTML} {
			if n := bytes.Count(doc, []byte(text)); n != 1 {
				t.Errorf("%s: got the words %q %d times in %s, want once", name, text, n, kind)
			}
		}
	}
	for name, n := range d.Numbers() {
		if got := bytes.Count(openapi.YAML, fmt.Appendf(nil, "\n    %s: %v\n", name, n)); got != 1 {
			t.Errorf("%s: got the number %d times, want once", name, got)
		}
	}
}

func TestTerms(t *testing.T) {
	t.Parallel()
	other := openapi.Terms{KeyLifetime: 36 * time.Hour, InProgressWait: 500 * time.Millisecond, CallTimeout: time.Minute, ClientRate: 2.5, ClientBurst: 7}
	for _, want := range []string{
		"kept for 36 hours.", "at most about 500 ms,", "within about 1 minute,", "2.5 calls a second of one gateway in the long run and 7 at once",
	} {
		for kind, doc := range map[string][]byte{"YAML": other.YAML(), "HTML": other.HTML()} {
			if !bytes.Contains(doc, []byte(want)) {
				t.Errorf("%s: got no %q", kind, want)
			}
		}
	}
	for _, want := range []string{
		"key_lifetime_seconds: 129600\n", "in_progress_wait_millis: 500\n", "call_timeout_millis: 60000\n", "client_calls_per_second: 2.5\n", "client_calls_at_once: 7\n",
	} {
		if !bytes.Contains(other.YAML(), []byte(want)) {
			t.Errorf("got no %q", want)
		}
	}
	if bytes.Equal(openapi.YAML, other.YAML()) || !bytes.Equal(openapi.DefaultTerms().YAML(), openapi.YAML) {
		t.Error("the embedded document was changed")
	}
	without := openapi.DefaultTerms()
	without.ClientRate = -1
	if !bytes.Contains(without.YAML(), []byte("not limited")) || !bytes.Contains(without.YAML(), []byte("client_calls_at_once: -1\n")) {
		t.Error("without a limit: got a document that names one")
	}
}
