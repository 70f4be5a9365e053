package messaging

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
)

var (
	testID   = uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")
	testAggr = uuid.MustParse("bc765b28-bc4d-58fd-a83e-d135647f37a8")
	testStep = uuid.MustParse("5665917c-6373-5fb0-9b0b-bdabd76539bc")
	testSeen = uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8001")
)

// full has every field set.
func full() Message {
	return Message{
		ID: testID, Kind: Reply, Subject: "rpl.order.place-order", Type: "throughline.payment.v1.AuthorizePaymentResult",
		Source: "/payment", AggregateID: testAggr, AggregateSeq: 7, IdempotencyKey: `cart "17", \ £?`[:12], StepName: "authorize_payment",
		StepKey: testStep, Outcome: OutcomeRefused, Reason: "card_declined", LastSeen: testSeen,
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "vendor=1",
		CreatedAt: time.Date(2026, 3, 4, 5, 6, 7, 123456000, time.UTC), Payload: []byte{0, 1, 2, 0xff},
	}
}

func TestMessageSurvivesTheWire(t *testing.T) {
	t.Parallel()
	tests := map[string]Message{
		"every field": full(),
		"command":     {ID: testID, Kind: Command, Subject: "cmd.payment.x", AggregateID: testAggr, StepName: "x", StepKey: testStep, CreatedAt: full().CreatedAt},
		"event":       {ID: testID, Kind: Event, Subject: "evt.order.placed", AggregateID: testAggr, AggregateSeq: 1, CreatedAt: full().CreatedAt},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg := want.toNATS()
			got, err := Parse(msg.Subject, msg.Header, msg.Data)
			if err != nil {
				t.Fatalf("got error %v", err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v, want\n%+v", got, want)
			}
		})
	}
	// A field that is added later must be in the case above too.
	v := reflect.ValueOf(full())
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("field %s of the case with every field is zero", v.Type().Field(i).Name)
		}
	}
}

func TestHeadersOnTheWire(t *testing.T) {
	t.Parallel()
	m := full()
	want := map[string]string{
		"Nats-Msg-Id": m.ID.String(), "ce-id": m.ID.String(), "ce-type": m.Type, "ce-source": m.Source, "ce-subject": m.AggregateID.String(),
		"ce-time": "2026-03-04T05:06:07.123456Z", "ce-specversion": "1.0", "content-type": "application/protobuf",
		"Idempotency-Key": m.IdempotencyKey, "Order-Id": m.AggregateID.String(), "Step-Name": m.StepName, "Step-Key": m.StepKey.String(),
		"Step-Outcome": "refused", "Step-Reason": m.Reason, "Aggregate-Seq": "7", "Last-Seen": m.LastSeen.String(),
		"traceparent": m.TraceParent, "tracestate": m.TraceState,
	}
	got := make(map[string]string)
	for k, v := range m.toNATS().Header {
		got[k] = strings.Join(v, ",")
	}
	if !maps.Equal(got, want) {
		t.Errorf("got\n%v, want\n%v", got, want)
	}
	m = Message{ID: testID, Subject: "evt.x", AggregateID: testAggr}
	for _, absent := range []string{HeaderStepKey, HeaderLastSeen, HeaderAggregateSeq, HeaderTraceState, HeaderIdempotencyKey} {
		if v, ok := m.toNATS().Header[absent]; ok {
			t.Errorf("got header %s %q of an empty field, want none", absent, v)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		subject, header, value string // the value "" removes the header
		names                  string // what the error has to name
	}{
		"subject of nobody":    {"other.thing", "", "", `"other.thing"`},
		"no subject":           {"-", "", "", `""`},
		"no id":                {"", HeaderCEID, "", HeaderCEID},
		"id is no UUID":        {"", HeaderCEID, "17", HeaderCEID},
		"id in capitals":       {"", HeaderCEID, strings.ToUpper(testID.String()), HeaderCEID},
		"id in braces":         {"", HeaderCEID, "{" + testID.String() + "}", HeaderCEID},
		"id is zero":           {"", HeaderCEID, uuid.Nil.String(), HeaderCEID},
		"no order id":          {"", HeaderOrderID, "", HeaderOrderID},
		"order id is no UUID":  {"", HeaderOrderID, "x", HeaderOrderID},
		"reply without a step": {"", HeaderStepKey, "", HeaderStepKey},
		"step key is no UUID":  {"", HeaderStepKey, "x", HeaderStepKey},
		"last seen is no UUID": {"", HeaderLastSeen, "x", HeaderLastSeen},
		"sequence is no number": {
			"", HeaderAggregateSeq, "seven", HeaderAggregateSeq,
		},
		"sequence is zero":         {"", HeaderAggregateSeq, "0", HeaderAggregateSeq},
		"sequence is too large":    {"", HeaderAggregateSeq, "9223372036854775808", HeaderAggregateSeq},
		"event without a sequence": {"evt.order.placed", HeaderAggregateSeq, "", HeaderAggregateSeq},
		"time is no time":          {"", HeaderCETime, "yesterday", HeaderCETime},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := full()
			msg := m.toNATS()
			switch tt.subject {
			case "":
			case "-":
				msg.Subject = ""
			default:
				msg.Subject = tt.subject
			}
			if tt.header != "" {
				delete(msg.Header, tt.header)
				if tt.value != "" {
					msg.Header[tt.header] = []string{tt.value}
				}
			}
			_, err := Parse(msg.Subject, msg.Header, msg.Data)
			if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), tt.names) {
				t.Errorf("got error %v, want one of %v that names %s", err, ErrMalformed, tt.names)
			}
		})
	}
}

func TestDeadLetterID(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 2)
	known := Delivery{Message: Message{ID: testID}, StreamSequence: 1, StoredAt: at}
	if got := known.DeadLetterID(); got != testID {
		t.Errorf("got %s of a message with an id, want the id %s", got, testID)
	}
	unknown := Delivery{Message: Message{Subject: "evt.x"}, StreamSequence: 1, StoredAt: at}
	again, next := unknown, unknown
	next.StreamSequence = 2
	if a, b := unknown.DeadLetterID(), again.DeadLetterID(); a != b || a == uuid.Nil {
		t.Errorf("got %s and %s of one message without an id, want one id", a, b)
	}
	if a, b := unknown.DeadLetterID(), next.DeadLetterID(); a == b {
		t.Errorf("got %s of two messages without an id, want two ids", a)
	}
}

// FuzzParse checks that whatever is read has what the code behind relies on, and survives the wire once more.
func FuzzParse(f *testing.F) {
	m := full()
	id, order := m.ID.String(), m.AggregateID.String()
	f.Add(m.Subject, id, order, m.StepKey.String(), m.LastSeen.String(), "7", "2026-03-04T05:06:07Z", "key", []byte("payload"))
	f.Add("evt.order.placed", id, order, "", "", "1", "", "", []byte(nil))
	f.Add("cmd.x", "", "", "", "", "-1", "x", "\x00\xff", []byte{0})
	f.Fuzz(func(t *testing.T, subject, id, order, step, seen, seq, at, key string, payload []byte) {
		h := make(nats.Header)
		for k, v := range map[string]string{
			HeaderCEID: id, HeaderOrderID: order, HeaderStepKey: step, HeaderLastSeen: seen, HeaderAggregateSeq: seq, HeaderCETime: at,
			HeaderIdempotencyKey: key,
		} {
			h[k] = []string{v}
		}
		m, err := Parse(subject, h, payload)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("got error %v, want one of %v", err, ErrMalformed)
			}
			return
		}
		if m.ID == uuid.Nil || m.AggregateID == uuid.Nil || m.Kind == 0 || m.AggregateSeq < 0 ||
			(m.Kind == Event) && m.AggregateSeq == 0 || m.Kind != Event && m.StepKey == uuid.Nil {
			t.Fatalf("got %+v without an error", m)
		}
		if at == "" {
			return // a message without a time is read, but not written
		}
		msg := m.toNATS()
		again, err := Parse(msg.Subject, msg.Header, msg.Data)
		if err != nil {
			t.Fatalf("reading it again: %v", err)
		}
		if !again.CreatedAt.Equal(m.CreatedAt) {
			t.Fatalf("got time %v, want %v", again.CreatedAt, m.CreatedAt)
		}
		again.CreatedAt = m.CreatedAt // in another time zone
		if !slices.Equal(again.Payload, m.Payload) || !reflect.DeepEqual(again, m) {
			t.Fatalf("got\n%+v, want\n%+v", again, m)
		}
	})
}
