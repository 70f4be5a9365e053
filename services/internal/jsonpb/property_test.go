package jsonpb_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/jsonpb"
)

// text is any string that a caller may send: UTF-8 without NUL.
func text() *rapid.Generator[string] {
	return rapid.Map(rapid.String(), func(s string) string {
		return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "")
	})
}

func safeInteger() *rapid.Generator[int64] { return rapid.Int64Range(-(1<<53 - 1), 1<<53-1) }

func order() *rapid.Generator[*orderv1.Order] {
	line := rapid.Custom(func(t *rapid.T) *orderv1.Line {
		return &orderv1.Line{
			Sku: text().Draw(t, "sku"), Quantity: safeInteger().Draw(t, "quantity"), UnitPrice: safeInteger().Draw(t, "price"),
		}
	})
	return rapid.Custom(func(t *rapid.T) *orderv1.Order {
		o := &orderv1.Order{
			OrderId:  text().Draw(t, "id"),
			Status:   orderv1.OrderStatus(rapid.Int32Range(0, 6).Draw(t, "status")),
			Total:    safeInteger().Draw(t, "total"),
			Lines:    rapid.SliceOfN(line, 0, 4).Draw(t, "lines"),
			Metadata: rapid.MapOfN(text(), text(), 0, 4).Draw(t, "metadata"),
			Note:     text().Draw(t, "note"),
		}
		if rapid.Bool().Draw(t, "has ship_to") {
			o.ShipTo = &orderv1.Address{City: text().Draw(t, "city")}
		}
		if rapid.Bool().Draw(t, "has created_at") {
			o.CreatedAt = &timestamppb.Timestamp{
				Seconds: rapid.Int64Range(-62135596800, 253402300799).Draw(t, "seconds"),
				Nanos:   1000 * rapid.Int32Range(0, 999999).Draw(t, "micros"),
			}
		}
		return o
	})
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := order().Draw(t, "order")
		text, err := jsonpb.Marshal(want)
		if err != nil {
			t.Fatalf("Marshal: %v", err)
		}
		if !json.Valid(text) {
			t.Fatalf("Marshal: got %s, want JSON", text)
		}
		got := new(orderv1.Order)
		if err := jsonpb.Unmarshal(text, got); err != nil {
			t.Fatalf("Unmarshal(%s): %v", text, err)
		}
		if !proto.Equal(got, want) {
			t.Fatalf("round trip over %s\n got %v\nwant %v", text, got, want)
		}
	})
}

// FuzzUnmarshal checks that nothing panics, that only *Error comes out, and that what was read has one rendering that
// is read as the same again.
func FuzzUnmarshal(f *testing.F) {
	for _, seed := range []string{
		`{"currency":"EUR","lines":[{"sku":"BOOK-1","quantity":2,"unit_price":1250}],"ship_to":{"name":"A. Buyer","line1":"1 High St",` +
			`"city":"Berlin","postal_code":"10115","country":"DE"},"payment_method":"pm_card_visa","note":"","metadata":{"k":"v"}}`,
		`{"currency":"EUR","currency":"JPY"}`, `{"lines":[{"quantity":1e2}]}`, `{"note":"\ud83d\ude00\ud800"}`, `{"note":"\u0000"}`,
		`{"metadata":{"a\"]":"\\"}}`, "\xef\xbb\xbf{}", `{}{}`, `{"lines":[`, `null`, `{"Lines":[]}`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		first := new(orderv1.CreateOrderRequest)
		if err := jsonpb.Unmarshal(data, first); err != nil {
			var refused *jsonpb.Error
			if !errors.As(err, &refused) {
				t.Fatalf("Unmarshal(%q): got %v, want an *Error", data, err)
			}
			return
		}
		if !json.Valid(data) || bytes.Contains(data, []byte{0}) {
			t.Fatalf("Unmarshal(%q): accepted", data)
		}
		text, err := jsonpb.Marshal(first)
		if err != nil {
			t.Fatalf("Marshal of what was read from %q: %v", data, err)
		}
		second := new(orderv1.CreateOrderRequest)
		if err := jsonpb.Unmarshal(text, second); err != nil || !proto.Equal(first, second) {
			t.Fatalf("reading %s again\n got %v, %v\nwant %v", text, second, err, first)
		}
	})
}
