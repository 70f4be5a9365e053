package sagasim

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// The statuses of an intent, as the provider has them.
type intentStatus string

const (
	toConfirm  intentStatus = "requires_confirmation"
	toAct      intentStatus = "requires_action"
	toCapture  intentStatus = "requires_capture"
	succeeded  intentStatus = "succeeded"
	canceled   intentStatus = "canceled"
	noMethod   intentStatus = "requires_payment_method"
	notAnAct   intentStatus = ""
	opCreate                = "create"
	opConfirm               = "confirm"
	opCapture               = "capture"
	opCancel                = "cancel"
	opRefund                = "refund"
	declinedBy              = "card_declined"
)

// intent is a payment at the provider.
type intent struct {
	ID                              string
	Order                           uuid.UUID
	Status                          intentStatus
	Amount, Held, Captured, Refunds int64
	// Replayed says that the answer was given before, under the same key.
	Replayed bool
}

// provider is the payment provider: intents, and idempotency keys that are bound to one operation. What it has answered under a key it
// answers again.
type provider struct {
	world   *world
	intents []*intent
	keys    map[uuid.UUID]keyed
	// pin lets the next operation under a new key fail, with or without its effect, and that failure be stored. pins counts them.
	pin  bool
	pins int
}

// keyed is what was answered under a key.
type keyed struct {
	operation string
	answer    intent
	err       error
}

var (
	errState     = errors.New("the intent's status does not allow that")
	errOtherUse  = errors.New("the key was used for something else")
	errNoSuch    = errors.New("no such object")
	errAnswerNot = errors.New("the answer tells neither a yes nor a no")
	// errPinned is a failure that the provider stores under the key, and repeats.
	errPinned = errors.New("500 stored under the key")
)

// replayedError is a stored error that is given again.
type replayedError struct{ error }

func (e replayedError) Unwrap() error { return e.error }

// replayed tells whether an answer was given before.
func replayed(in intent, err error) bool {
	var again replayedError
	return in.Replayed || errors.As(err, &again)
}

func newProvider(w *world) *provider {
	return &provider{world: w, keys: make(map[uuid.UUID]keyed)}
}

// under runs an operation under a key.
func (p *provider) under(key uuid.UUID, operation string, act func() (intent, error)) (intent, error) {
	if known, ok := p.keys[key]; ok {
		if known.operation != operation {
			p.world.failf("a provider key was used for %s and %s", known.operation, operation)
			return intent{}, errOtherUse
		}
		known.answer.Replayed = true
		if known.err != nil {
			return known.answer, replayedError{known.err}
		}
		return known.answer, nil
	}
	if p.pin {
		if p.world.pick(2) == 1 {
			_, _ = act()
		}
		p.pins++
		p.keys[key] = keyed{operation, intent{}, errPinned}
		return intent{}, errPinned
	}
	answer, err := act()
	p.keys[key] = keyed{operation, answer, err}
	return answer, err
}

func (p *provider) create(key, order uuid.UUID, amount int64) (intent, error) {
	return p.under(key, opCreate, func() (intent, error) {
		in := &intent{ID: fmt.Sprintf("pi_%d", len(p.intents)+1), Order: order, Status: toConfirm, Amount: amount}
		p.intents = append(p.intents, in)
		return *in, nil
	})
}

func (p *provider) find(id string) *intent {
	for _, in := range p.intents {
		if in.ID == id {
			return in
		}
	}
	return nil
}

// retrieve gives an intent as it is.
func (p *provider) retrieve(id string) (intent, error) {
	in := p.find(id)
	if in == nil {
		return intent{}, errNoSuch
	}
	return *in, nil
}

// search may say "found", never "absent": it lags behind.
func (p *provider) search(order uuid.UUID) []intent {
	var found []intent
	for _, in := range p.intents {
		if in.Order == order && in.Status != toConfirm && p.world.pick(2) == 0 {
			found = append(found, *in)
		}
	}
	return found
}

// change acts on an intent under a key.
func (p *provider) change(key uuid.UUID, operation, id string) (intent, error) {
	return p.under(key, operation, func() (intent, error) {
		in := p.find(id)
		if in == nil {
			return intent{}, errNoSuch
		}
		if err := p.apply(operation, in); err != nil {
			return intent{}, err
		}
		return *in, nil
	})
}

func (p *provider) apply(operation string, in *intent) error {
	o := p.world.orderOf(in.Order)
	switch {
	case operation == opConfirm && in.Status == toConfirm && o.declined:
		in.Status = noMethod
		return nil
	case operation == opConfirm && in.Status == toConfirm && o.customer != notNeeded:
		in.Status = toAct
		if o.customer == acts {
			p.world.after(p.world.seconds(60), "the customer acts", func() {
				if in.Status == toAct {
					in.Status, in.Held = toCapture, in.Amount
				}
			})
		}
	case operation == opConfirm && in.Status == toConfirm:
		in.Status, in.Held = toCapture, in.Amount
	case operation == opCapture && in.Status == toCapture && o.holdExpires:
		in.Status, in.Held = canceled, 0
		return errState
	case operation == opCapture && in.Status == toCapture:
		in.Status, in.Held, in.Captured = succeeded, 0, in.Amount
	case operation == opCancel && in.Status != succeeded && in.Status != canceled:
		in.Status, in.Held = canceled, 0
	case operation == opRefund && in.Status == succeeded && in.Refunds < in.Captured:
		in.Refunds = in.Captured
	default:
		return errState
	}
	return nil
}
