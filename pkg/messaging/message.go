package messaging

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
)

// Kind says what a message means: a command asks, a reply answers a command, an event states a fact.
type Kind uint8

// The kinds of message. Their numbers are stored in the outbox.
const (
	Command Kind = iota + 1
	Reply
	Event
)

// String names the kind as it is written in logs and spans.
func (k Kind) String() string {
	switch k {
	case Command:
		return "command"
	case Reply:
		return "reply"
	case Event:
		return "event"
	default:
		return "unknown"
	}
}

// The prefixes of subjects, by kind.
const (
	CommandPrefix = "cmd."
	ReplyPrefix   = "rpl."
	EventPrefix   = "evt."
)

// KindOf reads the kind from a subject, which is the only place where it is written on the wire. It is 0 for a subject
// that is none of ours.
func KindOf(subject string) Kind {
	switch {
	case strings.HasPrefix(subject, CommandPrefix):
		return Command
	case strings.HasPrefix(subject, ReplyPrefix):
		return Reply
	case strings.HasPrefix(subject, EventPrefix):
		return Event
	default:
		return 0
	}
}

// The headers of a message. The ce- headers are CloudEvents 1.0 in binary mode; Nats-Msg-Id is JetStream's own.
const (
	HeaderMessageID      = nats.MsgIdHdr
	HeaderCEID           = "ce-id"
	HeaderCEType         = "ce-type"
	HeaderCESource       = "ce-source"
	HeaderCESubject      = "ce-subject"
	HeaderCETime         = "ce-time"
	HeaderCESpecVersion  = "ce-specversion"
	HeaderContentType    = "content-type"
	HeaderIdempotencyKey = "Idempotency-Key"
	HeaderOrderID        = "Order-Id"
	HeaderStepName       = "Step-Name"
	HeaderStepKey        = "Step-Key"
	HeaderStepOutcome    = "Step-Outcome"
	HeaderStepReason     = "Step-Reason"
	HeaderAggregateSeq   = "Aggregate-Seq"
	HeaderLastSeen       = "Last-Seen"
	HeaderTraceParent    = "traceparent"
	HeaderTraceState     = "tracestate"
)

// contentType names the encoding of every payload.
const contentType = "application/protobuf"

// Message is one command, reply or event: what an outbox row holds and what JetStream carries.
type Message struct {
	// ID is the message id, a UUIDv7 minted when the message is written. It never changes: it is Nats-Msg-Id, ce-id
	// and the inbox key, also when the message is published again.
	ID uuid.UUID
	// Kind follows from Subject.
	Kind Kind
	// Subject is where the message is published.
	Subject string
	// Type is the full name of the payload's protobuf message.
	Type string
	// Source names the sending service, such as "/payment".
	Source string
	// AggregateID is the id of what the message is about: the order id.
	AggregateID uuid.UUID
	// AggregateSeq counts the events of one aggregate in one service, from 1, without a gap. It is 0 in commands and
	// replies, which tolerate any order.
	AggregateSeq int64
	// IdempotencyKey is the key that the client minted, unchanged.
	IdempotencyKey string
	// StepName and StepKey name the step of a command or reply. Every attempt of a step has the same step key.
	StepName string
	StepKey  uuid.UUID
	// Outcome is the outcome of the step, in replies.
	Outcome string
	// Reason is a stable word that says why a step was refused.
	Reason string
	// LastSeen is the id of the last message of the receiver about this aggregate that the sender had handled when it
	// wrote this one; the zero id if there was none. It proves to the receiver that this message of his, and with it all
	// that he published before it, is out.
	LastSeen uuid.UUID
	// TraceParent and TraceState are the W3C trace context that this message belongs to.
	TraceParent string
	TraceState  string
	// CreatedAt is when the message was written, to the microsecond.
	CreatedAt time.Time
	// Payload is the protobuf encoding of a message of type Type.
	Payload []byte
}

// toNATS gives the wire form.
func (m *Message) toNATS() *nats.Msg {
	id, aggregate := m.ID.String(), m.AggregateID.String()
	h := make(nats.Header, 18)
	set := func(key, value string) {
		if value != "" {
			h[key] = []string{value}
		}
	}
	set(HeaderMessageID, id)
	set(HeaderCEID, id)
	set(HeaderCEType, m.Type)
	set(HeaderCESource, m.Source)
	set(HeaderCESubject, aggregate)
	set(HeaderCETime, m.CreatedAt.UTC().Format(time.RFC3339Nano))
	set(HeaderCESpecVersion, "1.0")
	set(HeaderContentType, contentType)
	set(HeaderIdempotencyKey, m.IdempotencyKey)
	set(HeaderOrderID, aggregate)
	set(HeaderStepName, m.StepName)
	set(HeaderStepOutcome, m.Outcome)
	set(HeaderStepReason, m.Reason)
	set(HeaderTraceParent, m.TraceParent)
	set(HeaderTraceState, m.TraceState)
	if m.StepKey != uuid.Nil {
		set(HeaderStepKey, m.StepKey.String())
	}
	if m.LastSeen != uuid.Nil {
		set(HeaderLastSeen, m.LastSeen.String())
	}
	if m.AggregateSeq > 0 {
		set(HeaderAggregateSeq, strconv.FormatInt(m.AggregateSeq, 10))
	}
	return &nats.Msg{Subject: m.Subject, Header: h, Data: m.Payload}
}

// Parse reads the wire form. The error wraps [ErrMalformed] and says which header is wrong.
func Parse(subject string, h nats.Header, payload []byte) (Message, error) {
	m := Message{
		Subject:        subject,
		Type:           first(h, HeaderCEType),
		Source:         first(h, HeaderCESource),
		IdempotencyKey: first(h, HeaderIdempotencyKey),
		StepName:       first(h, HeaderStepName),
		Outcome:        first(h, HeaderStepOutcome),
		Reason:         first(h, HeaderStepReason),
		TraceParent:    first(h, HeaderTraceParent),
		TraceState:     first(h, HeaderTraceState),
		Payload:        payload,
	}
	if m.Kind = KindOf(subject); m.Kind == 0 {
		return m, fmt.Errorf("%w: subject %q is none of %s, %s, %s", ErrMalformed, subject, CommandPrefix, ReplyPrefix, EventPrefix)
	}
	// The application's id is ce-id. A copy that was published on purpose under another broker id is still the same message.
	if err := parseID(h, HeaderCEID, true, &m.ID); err != nil {
		return m, err
	}
	if err := parseID(h, HeaderOrderID, true, &m.AggregateID); err != nil {
		return m, err
	}
	if err := parseID(h, HeaderStepKey, m.Kind != Event, &m.StepKey); err != nil {
		return m, err
	}
	if err := parseID(h, HeaderLastSeen, false, &m.LastSeen); err != nil {
		return m, err
	}
	if s := first(h, HeaderAggregateSeq); s != "" || m.Kind == Event {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 1 {
			return m, fmt.Errorf("%w: header %s is %q, not a number above 0", ErrMalformed, HeaderAggregateSeq, s)
		}
		m.AggregateSeq = n
	}
	if s := first(h, HeaderCETime); s != "" {
		at, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			return m, fmt.Errorf("%w: header %s is %q, not an RFC 3339 time", ErrMalformed, HeaderCETime, s)
		}
		m.CreatedAt = at
	}
	return m, nil
}

// first gives the first value of a header. Header keys are compared as they are written: NATS headers keep their case.
func first(h nats.Header, key string) string {
	if v := h[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func parseID(h nats.Header, key string, required bool, into *uuid.UUID) error {
	s := first(h, key)
	if s == "" && !required {
		return nil
	}
	// The package reads other notations, too; two spellings of one id must not exist. And the zero id means none.
	id, err := uuid.Parse(s)
	if err != nil || id == uuid.Nil || id.String() != s {
		return fmt.Errorf("%w: header %s is %q, not a UUID", ErrMalformed, key, s)
	}
	*into = id
	return nil
}

// The outcomes of a step, as replies carry them. Who does not know does not reply.
const (
	OutcomeDone    = "done"
	OutcomeRefused = "refused"
	OutcomeWaiting = "waiting"
)
