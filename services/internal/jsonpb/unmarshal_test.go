package jsonpb_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/jsonpb"
)

func TestUnmarshalOrder(t *testing.T) {
	t.Parallel()
	const text = " {\"note\":\"\\u00e9\\ud83d\\ude00\\/\",\r\n\t\"currency\" : \"EUR\",\"lines\":[{\"sku\":\"A\",\"quantity\":-0}," +
		"{\"unit_price\":9007199254740991}],\"ship_to\":{\"city\":\"Łódź\"},\"metadata\":{\"a.b\":\"x\",\"\":\"\"}} \n"
	want := &orderv1.CreateOrderRequest{
		Currency: "EUR", Note: "é😀/",
		Lines:    []*orderv1.Line{{Sku: "A"}, {UnitPrice: 1<<53 - 1}},
		ShipTo:   &orderv1.Address{City: "Łódź"},
		Metadata: map[string]string{"a.b": "x", "": ""},
	}
	got := &orderv1.CreateOrderRequest{PaymentMethod: "must not survive"}
	if err := jsonpb.Unmarshal([]byte(text), got); err != nil {
		t.Fatalf("Unmarshal: %v", err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("Unmarshal\n got %v\nwant %v", got, want)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 100)
	tests := []struct {
		name, text, path, detail string
	}{
		{"nothing", "", "", "no JSON"},
		{"white space only", " \n", "", "no JSON"},
		{"byte-order mark", "\xef\xbb\xbf{}", "", "byte-order mark"},
		{"invalid UTF-8", "{\"note\":\"\xff\"}", "", "not valid UTF-8"},
		{"unpaired high surrogate", `{"note":"\ud800"}`, "note", "malformed JSON at byte 9"},
		{"unpaired low surrogate", `{"note":"\udc00x"}`, "note", "malformed JSON"},
		{"not an object", `[]`, "", "must be an object, not an array"},
		{"a string", `"x"`, "", "must be an object, not a string"},
		{"null", `null`, "", "null is not accepted"},
		{"a malformed literal", `nul`, "", "ends too early"},
		{"a second object", `{}{}`, "", "something after"},
		{"trailing word", `{} garbage`, "", "something after"},
		{"trailing comma", `{},`, "", "something after"},
		{"trailing NUL", "{}\x00", "", "something after"},
		{"comment", `{/* */}`, "", "malformed JSON"},
		{"truncated", `{"lines":[{"sku":"A"`, "lines[0]", "ends too early"},
		{"truncated string", `{"currency":"EU`, "currency", "ends too early"},
		{"comma in front of the end", `{"lines":[{},]}`, "lines[1]", "malformed JSON"},
		{"missing comma", `{"lines":[{} {}]}`, "lines[1]", "malformed JSON"},
		{"missing colon", `{"note" "x"}`, "note", "malformed JSON"},
		{"missing value", `{"note":}`, "note", "malformed JSON"},
		{"duplicate member", `{"currency":"EUR","currency":"JPY"}`, "currency", "duplicate member"},
		{"duplicate by escape", `{"currency":"EUR","\u0063urrency":"JPY"}`, "currency", "duplicate member"},
		{"duplicate deep down", `{"lines":[{},{"sku":"A","sku":"A"}]}`, "lines[1].sku", "duplicate member"},
		{"duplicate map key", `{"metadata":{"a b":"1","a b":"1"}}`, `metadata["a b"]`, "duplicate member"},
		{"duplicate map key, plain", `{"metadata":{"a":"1","a":"1"}}`, `metadata["a"]`, "duplicate member"},
		{"case variant", `{"lines":[{"quantity":1,"Quantity":100}]}`, "lines[0].Quantity", `there is "quantity"`},
		{"camel case", `{"shipTo":{}}`, "shipTo", "unknown member"},
		{"unknown member", `{"discount_pct":100}`, "discount_pct", "unknown member"},
		{"unknown member with dots", `{"a.b":1}`, `["a.b"]`, "unknown member"},
		{"unknown member, very long", `{"` + long + `":1}`, `["` + strings.Repeat("é", 32) + `…"]`, "unknown member"},
		{"NUL in a string", `{"ship_to":{"name":"a\u0000"}}`, "ship_to.name", "NUL"},
		{"NUL in a member name", `{"no\u0000te":"x"}`, `["no\x00te"]`, "NUL"},
		{"NUL in a map key", `{"metadata":{"\u0000":"x"}}`, `metadata["\x00"]`, "NUL"},
		{"fraction", `{"lines":[{"quantity":1.0}]}`, "lines[0].quantity", "without fraction"},
		{"exponent", `{"lines":[{"quantity":1e2}]}`, "lines[0].quantity", "without fraction or exponent"},
		{"2^53", `{"lines":[{"unit_price":9007199254740992}]}`, "lines[0].unit_price", "from -9007199254740991"},
		{"-2^53", `{"lines":[{"unit_price":-9007199254740992}]}`, "lines[0].unit_price", "to 9007199254740991"},
		{"beyond 64 bits", `{"lines":[{"unit_price":99999999999999999999999}]}`, "lines[0].unit_price", "must be an integer from"},
		{"leading zero", `{"lines":[{"quantity":01}]}`, "lines[0]", "malformed JSON"},
		{"a number in quotes", `{"lines":[{"quantity":"2"}]}`, "lines[0].quantity", "must be a number, not a string"},
		{"a number for a string", `{"currency":978}`, "currency", "must be a string, not a number"},
		{"a boolean for a string", `{"currency":true}`, "currency", "must be a string, not a boolean"},
		{"an object for a list", `{"lines":{}}`, "lines", "must be an array, not an object"},
		{"a list for an object", `{"ship_to":[]}`, "ship_to", "must be an object, not an array"},
		{"null member", `{"lines":[{"sku":null}]}`, "lines[0].sku", "null is not accepted"},
		{"null list", `{"lines":null}`, "lines", "null is not accepted"},
		{"null element", `{"lines":[null]}`, "lines[0]", "null is not accepted"},
		{"null map value", `{"metadata":{"k":null}}`, `metadata["k"]`, "null is not accepted"},
		{"nested too deep", strings.Repeat(`{"ship_to":`, 20000), "ship_to.ship_to", "unknown member"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := &orderv1.CreateOrderRequest{Note: "must not survive"}
			err := jsonpb.Unmarshal([]byte(tt.text), m)
			var got *jsonpb.Error
			if !errors.As(err, &got) {
				t.Fatalf("Unmarshal: got %v, want an *Error", err)
			}
			if got.Path != tt.path || !strings.Contains(got.Detail, tt.detail) {
				t.Errorf("Unmarshal\n got path %q, detail %q\nwant path %q, detail with %q", got.Path, got.Detail, tt.path, tt.detail)
			}
			if !proto.Equal(m, &orderv1.CreateOrderRequest{}) {
				t.Errorf("after the error: got %v, want an empty message", m)
			}
		})
	}
}

func TestUnmarshalKinds(t *testing.T) {
	t.Parallel()
	// Each text is its own canonical rendering, so that reading and writing it again must not change it.
	const rest = `"flag":false,"level":"UNSPECIFIED","levels":[],"children":{}`
	for _, text := range []string{
		`{"str":"x","i32":-2147483648,"i64":-9007199254740991,"u32":4294967295,"u64":9007199254740991,"flag":true,` +
			`"level":"HIGH","levels":["HIGH","UNSPECIFIED"],"children":{"k":{"str":"","i32":0,"i64":0,"u32":0,"u64":0,` + rest + `}}}`,
		`{"str":"","i32":0,"i64":0,"u32":0,"u64":0,` + rest + `,"left":""}`,
		`{"str":"","i32":0,"i64":0,"u32":0,"u64":0,` + rest + `,"right":7,"at":"9999-12-31T23:59:59.999999Z","maybe":0}`,
	} {
		m := newKinds(t)
		if err := jsonpb.Unmarshal([]byte(text), m); err != nil {
			t.Errorf("Unmarshal(%s): %v", text, err)
			continue
		}
		got, err := jsonpb.Marshal(m)
		if err != nil || string(got) != text {
			t.Errorf("reading and writing\n got %s, %v\nwant %s", got, err, text)
		}
	}
	for _, tt := range []struct{ text, path, detail string }{
		{`{"i32":2147483648}`, "i32", "to 2147483647"},
		{`{"u32":-1}`, "u32", "from 0"},
		{`{"u64":-1}`, "u64", "from 0"},
		{`{"flag":1}`, "flag", "must be a boolean, not a number"},
		{`{"flag":tru}`, "flag", "malformed JSON"},
		{`{"level":"LEVEL_HIGH"}`, "level", "not one of the names"},
		{`{"level":"high"}`, "level", "not one of the names"},
		{`{"level":"UNRECOGNIZED"}`, "level", "not one of the names"},
		{`{"level":3}`, "level", "must be a string"},
		{`{"left":"a","right":1}`, "right", `beside "left"`},
		{`{"at":"2026-01-01"}`, "at", "RFC 3339"},
		{`{"at":"2026-01-01T00:00:00.0000001Z"}`, "at", "six digits"},
		{`{"at":"0001-01-01T00:00:00+01:00"}`, "at", "years 1 to 9999"},
		{`{"at":{"seconds":1}}`, "at", "must be a string"},
	} {
		var got *jsonpb.Error
		if err := jsonpb.Unmarshal([]byte(tt.text), newKinds(t)); !errors.As(err, &got) {
			t.Errorf("Unmarshal(%s): got %v, want an *Error", tt.text, err)
		} else if got.Path != tt.path || !strings.Contains(got.Detail, tt.detail) {
			t.Errorf("Unmarshal(%s): got %q: %q, want %q: %q", tt.text, got.Path, got.Detail, tt.path, tt.detail)
		}
	}
	for text, into := range map[string]protoreflect.Name{`{"f":1}`: "Floats", `{"d":1}`: "Written", `{"raw":"AQI="}`: "Written"} {
		if err := jsonpb.Unmarshal([]byte(text), dynamicpb.NewMessage(kindsMessage(t, into))); !errors.Is(err, jsonpb.ErrUnsupported) {
			t.Errorf("Unmarshal of %s: got %v, want ErrUnsupported", text, err)
		}
	}
}
