package grpcapi

import (
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
)

func TestIsCountry(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{
		"DE": true, "JP": true, "AX": true, "BQ": true, "SS": true,
		"de": false, "De": false, "DEU": false, "276": false, "": false, "D": false, "Germany": false, " DE": false,
		"XX": false, "UK": false, "EU": false, "AN": false, "XK": false, "YU": false, "TP": false, "DD": false, "ZZ": false,
	} {
		if got := isCountry(code); got != want {
			t.Errorf("got %v for %q, want %v", got, code, want)
		}
	}
}

// ISO 3166-1 has 249 codes; a library that knows more or fewer is looked at by a person.
func TestCountries(t *testing.T) {
	t.Parallel()
	n := 0
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			if isCountry(string([]rune{a, b})) {
				n++
			}
		}
	}
	if n != 249 {
		t.Errorf("got %d countries, want 249", n)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	for _, no := range []int64{1, 2, 1 << 40, math.MaxInt64} {
		if got, ok := readToken(token(no)); !ok || got != no {
			t.Errorf("got %d, %v, want %d", got, ok, no)
		}
	}
	for _, s := range []string{"x", "AQ", token(0), token(-1), token(1) + "A", token(1) + "\n", token(1) + "=", "AgAAAAAAAAAB"} {
		if got, ok := readToken(s); ok {
			t.Errorf("got %d for %q, want it refused", got, s)
		}
	}
}

func FuzzReadToken(f *testing.F) {
	f.Add("")
	f.Add(token(7))
	f.Add("AgAAAAAAAAAB")
	f.Fuzz(func(t *testing.T, s string) {
		before, ok := readToken(s)
		if ok && before < 1 {
			t.Errorf("got %d for %q, want a number above 0", before, s)
		}
		if ok && s != "" && token(before) != s {
			t.Errorf("got %d for %q, whose token is %q: one place has one token", before, s, token(before))
		}
	})
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	base := &orderv1.CreateOrderRequest{
		Currency: "EUR", Lines: []*orderv1.Line{{Sku: "A", Quantity: 1}, {Sku: "B", Quantity: 1}},
		ShipTo: &orderv1.Address{City: "Berlin"}, Metadata: map[string]string{"k": "v"},
	}
	for _, tc := range []struct {
		name   string
		change func(*orderv1.CreateOrderRequest)
		want   []string
	}{
		{"none", func(*orderv1.CreateOrderRequest) {}, nil},
		{"text", func(r *orderv1.CreateOrderRequest) { r.Note = "n" }, []string{"note"}},
		{"in the second line", func(r *orderv1.CreateOrderRequest) { r.Lines[1].Quantity = 2 }, []string{"lines[1].quantity"}},
		{"lines exchanged", func(r *orderv1.CreateOrderRequest) { slices.Reverse(r.Lines) }, []string{"lines[0].sku", "lines[1].sku"}},
		{"fewer lines", func(r *orderv1.CreateOrderRequest) { r.Lines = r.Lines[:1] }, []string{"lines"}},
		{"no message", func(r *orderv1.CreateOrderRequest) { r.ShipTo = nil }, []string{"ship_to"}},
		{"in a message", func(r *orderv1.CreateOrderRequest) { r.ShipTo.City = "Bonn" }, []string{"ship_to.city"}},
		{"value of a map", func(r *orderv1.CreateOrderRequest) { r.Metadata["k"] = "w" }, []string{"metadata"}},
		{"key of a map", func(r *orderv1.CreateOrderRequest) { r.Metadata = map[string]string{"j": "v"} }, []string{"metadata"}},
		{"not known here", func(r *orderv1.CreateOrderRequest) { r.ProtoReflect().SetUnknown([]byte{0xa0, 0x06, 0x01}) }, []string{""}},
		{"many", func(r *orderv1.CreateOrderRequest) { r.Lines = slices.Repeat(r.Lines, 30) }, []string{"lines"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			other := proto.CloneOf(base)
			tc.change(other)
			if got := differences(base, other); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if got := differences(other, base); !slices.Equal(got, tc.want) {
				t.Errorf("got %q the other way, want %q", got, tc.want)
			}
		})
	}
}

func TestHasUnknown(t *testing.T) {
	t.Parallel()
	unknown := []byte{0xa0, 0x06, 0x01} // field 100
	for name, where := range map[string]func(*orderv1.CreateOrderRequest) proto.Message{
		"top":     func(r *orderv1.CreateOrderRequest) proto.Message { return r },
		"message": func(r *orderv1.CreateOrderRequest) proto.Message { return r.GetShipTo() },
		"list":    func(r *orderv1.CreateOrderRequest) proto.Message { return r.GetLines()[0] },
	} {
		r := &orderv1.CreateOrderRequest{Lines: []*orderv1.Line{{Sku: "A"}}, ShipTo: &orderv1.Address{City: "B"}, Metadata: map[string]string{"a": "b"}}
		if hasUnknown(r.ProtoReflect()) {
			t.Errorf("%s: got unknown fields, want none", name)
		}
		where(r).ProtoReflect().SetUnknown(unknown)
		if !hasUnknown(r.ProtoReflect()) {
			t.Errorf("%s: got no unknown fields, want some", name)
		}
	}
}
