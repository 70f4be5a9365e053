package jsonpb_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/jsonpb"
)

func TestMarshalOrder(t *testing.T) {
	t.Parallel()
	order := &orderv1.Order{
		OrderId:  "o-1",
		Status:   orderv1.OrderStatus_ORDER_STATUS_NEEDS_ATTENTION,
		Currency: "EUR",
		Total:    1<<53 - 1,
		Lines:    []*orderv1.Line{{Sku: "A", Quantity: 2, UnitPrice: 0}, {}},
		ShipTo:   &orderv1.Address{Name: "Łucja \"L\" <&>\u2028", Country: "PL"},
		Note:     "a\tb\x01/é",
		Metadata: map[string]string{"b": "2", "a": "1", "B": "", "": "e"},
		CreatedAt: &timestamppb.Timestamp{
			Seconds: 1767225599, Nanos: 123456789,
		},
	}
	want := `{"order_id":"o-1","status":"NEEDS_ATTENTION","currency":"EUR","total":9007199254740991,` +
		`"lines":[{"sku":"A","quantity":2,"unit_price":0},{"sku":"","quantity":0,"unit_price":0}],` +
		"\"ship_to\":{\"name\":\"Łucja \\\"L\\\" <&>\u2028\",\"line1\":\"\",\"line2\":\"\",\"city\":\"\",\"region\":\"\"," +
		`"postal_code":"","country":"PL"},"payment_method":"","note":"a\tb\u0001/é",` +
		`"metadata":{"":"e","B":"","a":"1","b":"2"},"failure_reason":"","idempotency_key":"",` +
		`"created_at":"2025-12-31T23:59:59.123456Z"}`
	for range 50 { // a map's order would show
		got, err := jsonpb.Marshal(order)
		if err != nil {
			t.Fatalf("Marshal: %v", err)
		}
		if string(got) != want {
			t.Fatalf("Marshal\n got %s\nwant %s", got, want)
		}
	}
}

func TestMarshalShapes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		m    proto.Message
		want string
	}{
		{"empty lists and maps are there", &orderv1.CreateOrderRequest{},
			`{"currency":"","lines":[],"payment_method":"","note":"","metadata":{}}`},
		{"zero enum", &orderv1.Order{}, `{"order_id":"","status":"UNSPECIFIED","currency":"","total":0,"lines":[],` +
			`"payment_method":"","note":"","metadata":{},"failure_reason":"","idempotency_key":""}`},
		{"enum of a newer release", &orderv1.Order{Status: 99},
			`{"order_id":"","status":"UNRECOGNIZED","currency":"","total":0,"lines":[],` +
				`"payment_method":"","note":"","metadata":{},"failure_reason":"","idempotency_key":""}`},
		{"whole second", &timestamppb.Timestamp{Seconds: 0}, `"1970-01-01T00:00:00.000000Z"`},
		{"before the epoch", &timestamppb.Timestamp{Seconds: -1, Nanos: 999999999}, `"1969-12-31T23:59:59.999999Z"`},
		{"fields out of order, presence unset", newKinds(t), `{"str":"","i32":0,"i64":0,"u32":0,"u64":0,"flag":false,` +
			`"level":"UNSPECIFIED","levels":[],"children":{}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := jsonpb.Marshal(tt.m)
			if err != nil || string(got) != tt.want {
				t.Errorf("Marshal\n got %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

func TestMarshalRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, want string
		m          proto.Message
	}{
		{"integer above 2^53-1", "total: integer beyond", &orderv1.Order{Total: 1 << 53}},
		{"integer below -(2^53-1)", "lines[1].unit_price: integer beyond",
			&orderv1.Order{Lines: []*orderv1.Line{{}, {UnitPrice: -(1 << 53)}}}},
		{"smallest integer", "total: integer beyond", &orderv1.Order{Total: math.MinInt64}},
		{"string that is not UTF-8", "note: string is not valid UTF-8", &orderv1.Order{Note: "\xff"}},
		{"map key that is not UTF-8", "not valid UTF-8", &orderv1.Order{Metadata: map[string]string{"\xff": ""}}},
		{"timestamp out of range", "updated_at: timestamp outside",
			&orderv1.Order{UpdatedAt: &timestamppb.Timestamp{Seconds: math.MaxInt64}}},
		{"nil", "message is nil", (*orderv1.Order)(nil)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := jsonpb.Marshal(tt.m)
			if err == nil || !strings.Contains(err.Error(), tt.want) || got != nil {
				t.Errorf("Marshal: got %s, %v, want an error with %q", got, err, tt.want)
			}
		})
	}
	if got, err := jsonpb.Marshal(&durationpb.Duration{Seconds: 1, Nanos: -1}); err == nil {
		t.Errorf("Marshal of a Duration with two signs: got %s, want an error", got)
	}
	if _, err := jsonpb.Marshal(newFloats(t)); !errors.Is(err, jsonpb.ErrUnsupported) {
		t.Errorf("Marshal of a float: got %v, want ErrUnsupported", err)
	}
}

// Numbers with a fraction and bytes are written, for operators.
func TestMarshalWritten(t *testing.T) {
	t.Parallel()
	md := kindsMessage(t, "Written")
	of := func(d float64, raw []byte) proto.Message {
		m := dynamicpb.NewMessage(md)
		m.Set(md.Fields().ByName("d"), protoreflect.ValueOfFloat64(d))
		m.Set(md.Fields().ByName("raw"), protoreflect.ValueOfBytes(raw))
		return m
	}
	for want, m := range map[string]proto.Message{
		`{"d":0,"raw":""}`: of(0, nil), `{"d":0.1,"raw":"AP8="}`: of(0.1, []byte{0, 255}), `{"d":-1250000.5,"raw":"AAAA"}`: of(-1250000.5, make([]byte, 3)),
	} {
		if got, err := jsonpb.Marshal(m); err != nil || string(got) != want {
			t.Errorf("Marshal: got %s, %v, want %s", got, err, want)
		}
	}
	for _, d := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if got, err := jsonpb.Marshal(of(d, nil)); err == nil {
			t.Errorf("Marshal of %v: got %s, want an error", d, got)
		}
	}
}

// A duration is seconds with the six digits that databases keep.
func TestMarshalDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: `"0.000000s"`, 1250 * time.Millisecond: `"1.250000s"`, -1999 * time.Nanosecond: `"-0.000001s"`, 26 * time.Hour: `"93600.000000s"`,
	} {
		if got, err := jsonpb.Marshal(durationpb.New(d)); err != nil || string(got) != want {
			t.Errorf("Marshal of %s: got %s, %v, want %s", d, got, err, want)
		}
	}
}
