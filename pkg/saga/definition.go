package saga

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
)

// Kind says what may happen after a step.
type Kind string

// The kinds of step.
const (
	// KindCompensatable steps can be undone.
	KindCompensatable Kind = "compensatable"
	// KindPivot is the point of no return: before it the saga can be cancelled, after it the saga is meant to succeed.
	KindPivot Kind = "pivot"
	// KindRetriable steps follow the pivot and succeed in the end.
	KindRetriable Kind = "retriable"
)

// Command asks a participant to perform a step, or to undo one.
type Command struct {
	// Participant is the service that performs it.
	Participant string
	// Step is the step's name, or the undo's.
	Step string
	// Payload tells the participant what to do.
	Payload proto.Message
}

// To makes a command.
func To(participant, step string, payload proto.Message) Command {
	return Command{Participant: participant, Step: step, Payload: payload}
}

// Builder builds a command from the saga's data. It must do nothing else: no I/O, no clock, no randomness. It is called
// again for each attempt, and once at start-up with an empty T.
type Builder[T proto.Message] func(data T) Command

// Timing bounds a step in time. Zero values mean the defaults.
type Timing struct {
	// Ask is how long the engine waits for a reply before it asks. It doubles with each time, up to AskMax, with jitter.
	Ask    time.Duration
	AskMax time.Duration
	// Budget is how long a step may stay without an outcome before the saga turns back, or waits for a person; for an
	// undo, how long before a person is told.
	Budget time.Duration
}

// The defaults of [Timing].
const (
	DefaultAsk    = 5 * time.Second
	DefaultAskMax = time.Minute
	DefaultBudget = 2 * time.Minute
)

func (t Timing) withDefaults() Timing {
	if t.Ask <= 0 {
		t.Ask = DefaultAsk
	}
	if t.AskMax <= 0 {
		t.AskMax = DefaultAskMax
	}
	if t.Budget <= 0 {
		t.Budget = DefaultBudget
	}
	return t
}

// Step is one step of a definition. Make it with [Compensatable], [Pivot] or [Retriable].
type Step[T proto.Message] struct {
	name   string
	kind   Kind
	action Builder[T]
	undo   Builder[T]
	timing Timing
	// Learnt from the builders by MustDefine.
	participant     string
	undoName        string
	undoParticipant string
}

// Compensatable is a step that can be undone. The undo must succeed whether the action was performed or not.
func Compensatable[T proto.Message](name string, action, undo Builder[T]) Step[T] {
	return Step[T]{name: name, kind: KindCompensatable, action: action, undo: undo}
}

// Pivot is the step after which the saga is meant to succeed. It has no undo of its own: if it is refused, the undos of the
// steps before it must also undo what it may have done.
func Pivot[T proto.Message](name string, action Builder[T]) Step[T] {
	return Step[T]{name: name, kind: KindPivot, action: action}
}

// Retriable is a step after the pivot. A definite refusal of it turns the saga back all the same.
func Retriable[T proto.Message](name string, action Builder[T]) Step[T] {
	return Step[T]{name: name, kind: KindRetriable, action: action}
}

// Within gives the step its own timing.
func (s Step[T]) Within(t Timing) Step[T] {
	s.timing = t
	return s
}

// Definition is a saga's plan. It does not change; a new plan is a new version.
type Definition[T proto.Message] struct {
	name    string
	version int
	steps   []Step[T]
	hash    []byte
}

// MustDefine makes a definition and panics if it is not well-formed. It is meant for package-level variables.
func MustDefine[T proto.Message](name string, version int, steps ...Step[T]) *Definition[T] {
	d, err := Define(name, version, steps...)
	if err != nil {
		panic(err)
	}
	return d
}

// token is what may stand between the dots of a subject.
var token = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Define makes a definition. The error says what is wrong with the steps.
func Define[T proto.Message](name string, version int, steps ...Step[T]) (*Definition[T], error) {
	if name == "" || version < 1 || len(steps) == 0 {
		return nil, fmt.Errorf("defining saga %q version %d: it needs a name, a version above 0 and a step", name, version)
	}
	d := &Definition[T]{name: name, version: version, steps: make([]Step[T], len(steps))}
	used := make(map[string]bool)
	turned := false // the pivot is behind us
	for i, s := range steps {
		if err := s.learn(); err != nil {
			return nil, fmt.Errorf("defining saga %s: %w", name, err)
		}
		for _, n := range []string{s.participant, s.undoParticipant} {
			if n != "" && !token.MatchString(n) {
				return nil, fmt.Errorf("defining saga %s: %q cannot be part of a subject", name, n)
			}
		}
		for _, n := range []string{s.name, s.undoName} {
			if n != "" && !token.MatchString(n) {
				return nil, fmt.Errorf("defining saga %s: %q cannot be part of a subject", name, n)
			}
			if n != "" && used[n] {
				return nil, fmt.Errorf("defining saga %s: the name %q is used twice", name, n)
			}
			used[n] = true
		}
		switch {
		case s.kind == KindRetriable && !turned:
			return nil, fmt.Errorf("defining saga %s: retriable step %s does not follow a pivot", name, s.name)
		case s.kind == KindRetriable && d.steps[0].kind == KindPivot:
			return nil, fmt.Errorf("defining saga %s: if step %s were refused, no step before pivot %s could undo the pivot", name, s.name, d.steps[0].name)
		case s.kind != KindRetriable && turned:
			return nil, fmt.Errorf("defining saga %s: only retriable steps may follow the pivot, %s is %s", name, s.name, s.kind)
		}
		turned = turned || s.kind == KindPivot
		s.timing = s.timing.withDefaults()
		d.steps[i] = s
	}
	d.hash = d.fingerprint()
	return d, nil
}

// learn calls the builders with the zero value to learn whom they address.
func (s *Step[T]) learn() error {
	var zero T
	data := zero.ProtoReflect().Type().New().Interface().(T)
	if s.name == "" || s.action == nil {
		return errors.New("a step needs a name and an action")
	}
	cmd := s.action(data)
	if cmd.Step != s.name || cmd.Participant == "" || cmd.Payload == nil {
		return fmt.Errorf("the action of step %s builds a command for %q at %q; it must name the step and a participant, and have a payload",
			s.name, cmd.Step, cmd.Participant)
	}
	s.participant = cmd.Participant
	if s.kind != KindCompensatable {
		return nil
	}
	if s.undo == nil {
		return fmt.Errorf("compensatable step %s needs an undo", s.name)
	}
	undo := s.undo(data)
	if undo.Step == "" || undo.Participant == "" || undo.Payload == nil {
		return fmt.Errorf("the undo of step %s must name itself and a participant, and have a payload", s.name)
	}
	s.undoName, s.undoParticipant = undo.Step, undo.Participant
	return nil
}

// fingerprint covers what stored sagas depend on: the steps, their kinds and whom they address.
func (d *Definition[T]) fingerprint() []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %d\n", d.name, d.version)
	for _, s := range d.steps {
		fmt.Fprintf(h, "%q %q %q %q %q\n", s.name, s.kind, s.participant, s.undoName, s.undoParticipant)
	}
	return h.Sum(nil)[:8]
}

// New gives a saga before it begins. [Started] begins it.
func (d *Definition[T]) New(id uuid.UUID, key string) Instance {
	in := Instance{
		ID: id, Definition: d.name, Version: d.version, Hash: d.hash, IdempotencyKey: key,
		Steps: make([]StepState, len(d.steps)), Seen: make(map[string]uuid.UUID),
	}
	for i, s := range d.steps {
		in.Steps[i].Name = s.name
	}
	return in
}

// find gives the step that an action or an undo belongs to.
func (d *Definition[T]) find(name string) (i int, undo, ok bool) {
	for i, s := range d.steps {
		switch name {
		case s.name:
			return i, false, true
		case s.undoName:
			return i, true, name != ""
		}
	}
	return 0, false, false
}

// Name is the saga's name.
func (d *Definition[T]) Name() string { return d.name }

// Version tells plans of one saga apart.
func (d *Definition[T]) Version() int { return d.version }

// Hash changes when the plan does.
func (d *Definition[T]) Hash() []byte { return d.hash }

// Participants lists the services that take part, each once, in the order of the steps.
func (d *Definition[T]) Participants() []string {
	var names []string
	seen := make(map[string]bool)
	for _, s := range d.steps {
		for _, n := range []string{s.participant, s.undoParticipant} {
			if n != "" && !seen[n] {
				seen[n] = true
				names = append(names, n)
			}
		}
	}
	return names
}
