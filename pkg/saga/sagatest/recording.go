package sagatest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/saga"
)

// ErrOtherwise says that a saga that was recorded would go another way today.
var ErrOtherwise = errors.New("the saga would go otherwise")

// Recording is what a saga went through on Postgres: what happened to it, and what its rows say of what followed. It is kept in a file
// (testdata) for as long as sagas of its version may be unfinished, and replayed against each release. Make it with [Record].
type Recording struct {
	Definition string    `json:"definition"`
	Version    int       `json:"version"`
	Hash       string    `json:"hash"`
	SagaID     uuid.UUID `json:"saga_id"`
	Key        string    `json:"idempotency_key"`
	// Data is the saga's data, as it was encoded.
	Data   []byte     `json:"data"`
	Events []Recorded `json:"events"`
	// State is how the steps were stored at the end.
	State []saga.StepState `json:"state"`
}

// Recorded is one thing that happened to a saga, and what followed.
type Recorded struct {
	At time.Time `json:"at"`
	// Kind is "started", "replied", "asked", "cancelled" or "resolved".
	Kind      string        `json:"kind"`
	Step      string        `json:"step,omitempty"`
	Outcome   saga.Outcome  `json:"outcome,omitempty"`
	Finding   saga.Finding  `json:"finding,omitempty"`
	Decision  saga.Decision `json:"decision,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Detail    []byte        `json:"detail,omitempty"`
	MessageID uuid.UUID     `json:"message_id,omitzero"`
	// History are the rows of saga_transition that were written, Sent the commands in the outbox.
	History []string `json:"history,omitempty"`
	Sent    []string `json:"sent,omitempty"`
}

// input gives what happened as an input of saga's Definition.Advance.
func (r *Recorded) input() (saga.Input, error) {
	switch r.Kind {
	case "started":
		return saga.Started{}, nil
	case "replied":
		return saga.Replied{Step: r.Step, Outcome: r.Outcome, Reason: r.Reason, Detail: r.Detail, MessageID: r.MessageID}, nil
	case "asked":
		return saga.Asked{Step: r.Step, Answer: saga.Answer{Finding: r.Finding, Reason: r.Reason}}, nil
	case "cancelled":
		return saga.CancelRequested{}, nil
	case "resolved":
		return saga.Resolved{Decision: r.Decision, Step: r.Step}, nil
	}
	return nil, fmt.Errorf("a recording has the unplanned event %q", r.Kind)
}

// recordedOf is the opposite of input.
func recordedOf(input saga.Input) Recorded {
	switch in := input.(type) {
	case saga.Replied:
		return Recorded{Kind: "replied", Step: in.Step, Outcome: in.Outcome, Reason: in.Reason, Detail: in.Detail, MessageID: in.MessageID}
	case saga.Asked:
		return Recorded{Kind: "asked", Step: in.Step, Finding: in.Answer.Finding, Reason: in.Answer.Reason}
	case saga.CancelRequested:
		return Recorded{Kind: "cancelled"}
	case saga.Resolved:
		return Recorded{Kind: "resolved", Step: in.Step, Decision: in.Decision}
	default:
		return Recorded{Kind: "started"}
	}
}

func transitionLine(t *saga.Transition) string {
	step := t.Step
	if step == "" {
		step = "saga"
	}
	return fmt.Sprintf("%s: %q to %q by %s, attempt %d", step, t.From, t.To, t.Cause, t.Attempt)
}

// commandLine tells commands apart by what participants read.
func commandLine(participant, step, messageType string, payload []byte) string {
	return fmt.Sprintf("%s.%s %s %x", participant, step, messageType, payload)
}

// Replay lets what was recorded happen to a saga of the given definition, and gives an error that wraps [ErrOtherwise] unless everything
// follows that followed then: an unfinished saga of that version could not be trusted to this release.
func Replay[T proto.Message](d *saga.Definition[T], r *Recording) error {
	if d.Name() != r.Definition || d.Version() != r.Version {
		return fmt.Errorf("%w: it was recorded with %s version %d, and this is %s version %d", ErrOtherwise, r.Definition, r.Version, d.Name(), d.Version())
	}
	if hash := hex.EncodeToString(d.Hash()); hash != r.Hash {
		return fmt.Errorf("%w: the steps of %s version %d have changed (%s, recorded with %s); a changed plan needs a version of its own",
			ErrOtherwise, r.Definition, r.Version, hash, r.Hash)
	}
	var zero T
	data := zero.ProtoReflect().New().Interface().(T)
	if err := proto.Unmarshal(r.Data, data); err != nil {
		return fmt.Errorf("decoding the data of a recording: %w", err)
	}
	in := d.New(r.SagaID, r.Key)
	for i := range r.Events {
		e := &r.Events[i]
		input, err := e.input()
		if err != nil {
			return err
		}
		after, effects, err := d.Advance(in, data, input, e.At)
		if err != nil {
			return fmt.Errorf("%w: event %d, %s %s: %w", ErrOtherwise, i, e.Kind, e.Step, err)
		}
		var history, sent []string
		for _, t := range effects.Transitions {
			history = append(history, transitionLine(&t))
		}
		for _, c := range effects.Send {
			payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(c.Payload)
			if err != nil {
				return fmt.Errorf("encoding a command: %w", err)
			}
			sent = append(sent, commandLine(c.Participant, c.Step, string(c.Payload.ProtoReflect().Descriptor().FullName()), payload))
		}
		if !slices.Equal(history, e.History) || !slices.Equal(sent, e.Sent) {
			return fmt.Errorf("%w: event %d, %s %s:\n got %q, %q\nwant %q, %q", ErrOtherwise, i, e.Kind, e.Step, history, sent, e.History, e.Sent)
		}
		in = after
	}
	got, err := json.Marshal(in.Steps)
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}
	want, err := json.Marshal(r.State)
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: at the end:\n got %s\nwant %s", ErrOtherwise, got, want)
	}
	return nil
}
