package saga

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
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
	// beside are the steps of a group, which has nothing else.
	beside []Step[T]
	// end is the index behind the last step of the group that this one belongs to; begin is that of the first. A step that stands
	// alone is a group of one.
	begin, end int
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

// Parallel lets steps run side by side: their commands are sent together, and the saga goes on when all of them are done. All of
// them must be compensatable, or all retriable.
//
// When one of them is refused, or runs out of its budget, the saga turns back without waiting for the others: those without an
// outcome are in doubt, and undone like those that are done. The undos of a group run side by side, too, and those of the steps
// before it follow when all of them are confirmed. A retriable step that is in doubt then is given up: like the pivot, it has no undo,
// and what it may have done is undone by the undos of the compensatable steps.
func Parallel[T proto.Message](steps ...Step[T]) Step[T] {
	return Step[T]{beside: append([]Step[T]{}, steps...)}
}

// Within gives the step its own timing, or each step of a group.
func (s Step[T]) Within(t Timing) Step[T] {
	s.timing = t
	s.beside = slices.Clone(s.beside)
	for i := range s.beside {
		s.beside[i].timing = t
	}
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
	steps, err := flat(steps)
	if err != nil {
		return nil, fmt.Errorf("defining saga %s: %w", name, err)
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

// flat puts the steps of groups into the list, and notes for each step which group it belongs to.
func flat[T proto.Message](list []Step[T]) ([]Step[T], error) {
	var all []Step[T]
	for _, s := range list {
		group := s.beside
		switch {
		case group == nil:
			group = []Step[T]{s}
		case len(group) < 2:
			return nil, errors.New("a group of parallel steps needs two of them")
		}
		begin, end := len(all), len(all)+len(group)
		for _, member := range group {
			switch {
			case member.beside != nil:
				return nil, errors.New("a group of parallel steps cannot have a group in it")
			case len(group) > 1 && member.kind == KindPivot:
				return nil, fmt.Errorf("pivot %s cannot run beside other steps", member.name)
			case member.kind != group[0].kind:
				return nil, fmt.Errorf("%s step %s cannot run beside %s step %s", member.kind, member.name, group[0].kind, group[0].name)
			}
			member.begin, member.end = begin, end
			all = append(all, member)
		}
	}
	return all, nil
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

// fingerprint covers what stored sagas depend on: the steps, their kinds and whom they address, and which run side by side.
func (d *Definition[T]) fingerprint() []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %d\n", d.name, d.version)
	for _, s := range d.steps {
		fmt.Fprintf(h, "%q %q %q %q %q\n", s.name, s.kind, s.participant, s.undoName, s.undoParticipant)
		if s.end-s.begin > 1 { // stored hashes are of definitions without groups
			fmt.Fprintf(h, "beside %d to %d\n", s.begin, s.end)
		}
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

// Undoes names the step that an undo undoes; empty if there is no undo of that name.
func (d *Definition[T]) Undoes(undo string) string {
	if i, undoing, ok := d.find(undo); ok && undoing {
		return d.steps[i].name
	}
	return ""
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
