package grpcapi

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/idempotency"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/jsonpb"
)

// stored is a request as an earlier release has stored it.
type stored struct {
	Name        string          `json:"name"`
	Request     json.RawMessage `json:"request"`
	Canonical   string          `json:"canonical"`   // hex
	Version     int16           `json:"version"`     // of the form
	Fingerprint string          `json:"fingerprint"` // hex
}

func readStored(t *testing.T) []stored {
	t.Helper()
	text, err := os.ReadFile("testdata/stored_requests.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []stored
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func parse(t testing.TB, text []byte) *orderv1.CreateOrderRequest {
	t.Helper()
	req := new(orderv1.CreateOrderRequest)
	if err := jsonpb.Unmarshal(text, req); err != nil {
		t.Fatalf("reading %s: %v", text, err)
	}
	return req
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What earlier releases have stored is kept for ever, and orders that were placed with them are repeated with this release. If this test
// fails, the form of requests has changed: count requestVersion up, and keep the old entries.
func TestStoredRequests(t *testing.T) {
	t.Parallel()
	for _, s := range readStored(t) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			form := unhex(t, s.Canonical)
			first := new(orderv1.CreateOrderRequest)
			if err := proto.Unmarshal(form, first); err != nil {
				t.Fatalf("reading what is stored: %v", err)
			}
			again := parse(t, s.Request)
			if paths := differences(first, again); len(paths) > 0 {
				t.Errorf("the same request: got differences %q, want none", paths)
			}
			if s.Version == requestVersion {
				got, err := canonical(again)
				if err != nil || !bytes.Equal(got, form) {
					t.Errorf("canonical form: got %x, %v, want %x", got, err, form)
				}
				if got := idempotency.Fingerprint(s.Version, form); !bytes.Equal(got, unhex(t, s.Fingerprint)) {
					t.Errorf("fingerprint: got %x, want %s", got, s.Fingerprint)
				}
			}
			// A member that was new after the order was placed: absent, or with its default, it changes nothing.
			for member, values := range map[string][2]string{
				"note": {`""`, `"x"`}, "metadata": {`{}`, `{"k":"v"}`},
			} {
				if bytes.Contains(s.Request, []byte(`"`+member+`"`)) {
					continue
				}
				with := func(value string) []byte {
					return []byte(strings.Replace(string(s.Request), "{", `{"`+member+`":`+value+`,`, 1))
				}
				if paths := differences(first, parse(t, with(values[0]))); len(paths) > 0 {
					t.Errorf("with %s: got differences %q, want none", values[0], paths)
				}
				if paths := differences(first, parse(t, with(values[1]))); !slices.Equal(paths, []string{member}) {
					t.Errorf("with %s: got differences %q, want %s", values[1], paths, member)
				}
			}
		})
	}
}

// FuzzComparison checks that two requests are the same exactly if they mean the same, whichever of our ways is asked, and that no
// rendering of a request makes it another one. The seeds are in testdata.
func FuzzComparison(f *testing.F) {
	f.Fuzz(func(t *testing.T, first, second []byte) {
		a, b := new(orderv1.CreateOrderRequest), new(orderv1.CreateOrderRequest)
		if jsonpb.Unmarshal(first, a) != nil {
			return
		}
		for name, other := range renderings(t, first, a) {
			again := parse(t, other)
			if paths := differences(a, again); len(paths) > 0 {
				t.Fatalf("%s: got differences %q between %s and %s, want none", name, paths, first, other)
			}
		}
		if jsonpb.Unmarshal(second, b) != nil {
			return
		}
		formA, errA := canonical(a)
		formB, errB := canonical(b)
		if errA != nil || errB != nil {
			t.Fatalf("canonical forms: %v, %v", errA, errB)
		}
		want := proto.Equal(a, b)
		paths := differences(a, b)
		if got := len(paths) == 0; got != want {
			t.Fatalf("%s and %s: got differences %q, want them the same: %v", first, second, paths, want)
		}
		if back := differences(b, a); !slices.Equal(back, paths) {
			t.Fatalf("%s and %s: got differences %q, and %q the other way", first, second, paths, back)
		}
		if got := bytes.Equal(formA, formB); got != want {
			t.Fatalf("%s and %s: got the same canonical form: %v, want %v", first, second, got, want)
		}
		if len(paths) > maxDifferences {
			t.Fatalf("got %d differences, want at most %d", len(paths), maxDifferences)
		}
	})
}

// renderings are other texts of a request that mean the same.
func renderings(t *testing.T, text []byte, req *orderv1.CreateOrderRequest) map[string][]byte {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "\t", "  "); err != nil {
		t.Fatalf("got %s accepted, which is no JSON: %v", text, err)
	}
	defaults, err := jsonpb.Marshal(req)
	if err != nil {
		t.Fatalf("rendering %s: %v", text, err)
	}
	return map[string][]byte{"indented": indented.Bytes(), "with defaults": defaults, "with blanks around": append(append([]byte(" \n"), text...), "\r\n\t "...)}
}
