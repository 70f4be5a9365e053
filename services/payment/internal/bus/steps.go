package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/money"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/telemetry"
	paymentv1 "github.com/throughline/throughline/proto/gen/throughline/payment/v1"
	"github.com/throughline/throughline/services/payment/internal/payment"
	"github.com/throughline/throughline/services/payment/internal/provider"
)

// The names of the steps, as commands and the step table have them.
const (
	AuthorizePayment = "authorize_payment"
	CapturePayment   = "capture_payment"
	VoidPayment      = "void_payment"
)

// The operations that provider keys are derived from. They never change: another word would be another key, and so a second
// charge for an order that is under way.
const (
	opCreate  = "create"
	opConfirm = "confirm"
	opCapture = "capture"
	opCancel  = "cancel"
	opRefund  = "refund"
)

// Operations lists the words that provider keys are derived from, without the suffixes of those that were used up.
func Operations() []string { return []string{opCreate, opConfirm, opCapture, opCancel, opRefund} }

// maxKeys bounds the keys that one attempt uses up for one operation. Each is used only after the provider has repeated a stored
// answer to the one before.
const maxKeys = 8

// Defaults of [Config].
const (
	// DefaultKeyLifetime is how long after the first attempt the provider is trusted to know a key: it promises 24 h, less an
	// hour for clocks that differ and requests that take their time.
	DefaultKeyLifetime = 23 * time.Hour
	// DefaultCustomerTime is how long a customer has to authenticate a payment.
	DefaultCustomerTime = 15 * time.Minute
)

const (
	// refundPoll is when a refund that is on its way is looked at again.
	refundPoll = 2 * time.Second
	// customerPollMin and customerPollMax bound how often it is asked whether the customer has acted: often at first, when he is
	// likely to.
	customerPollMin = time.Second
	customerPollMax = 30 * time.Second
)

var (
	errUnplanned   = errors.New("the intent's status tells neither a yes nor a no")
	errNoEffect    = errors.New("the provider says yes, and the intent shows no effect")
	errKeysUsedUp  = errors.New("the provider repeats stored answers under all keys")
	errKeyForgot   = errors.New("the provider may have forgotten the key, and the intent is not found")
	errTooLate     = errors.New("the provider may have forgotten the key, so nothing is sent under it")
	errUndecodable = errors.New("the command cannot be read")
)

// Config makes [Steps]. Zero values mean the defaults.
type Config struct {
	Provider *provider.Client
	// KeyLifetime is how long, from the first attempt on, a key is used at the provider. Afterwards it is only asked.
	KeyLifetime time.Duration
	// CustomerTime is how long, from the first attempt on, a customer may take to authenticate.
	CustomerTime time.Duration
	Logger       *slog.Logger
}

// Steps are the steps that the payment service performs.
type Steps struct {
	cfg Config
	log *slog.Logger
}

// NewSteps makes the steps.
func NewSteps(cfg Config) *Steps {
	if cfg.KeyLifetime <= 0 {
		cfg.KeyLifetime = DefaultKeyLifetime
	}
	if cfg.CustomerTime <= 0 {
		cfg.CustomerTime = DefaultCustomerTime
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Steps{cfg: cfg, log: cfg.Logger}
}

// All are the steps for a participant.Runner.
func (s *Steps) All() []participant.Step {
	return []participant.Step{
		{Name: AuthorizePayment, Perform: s.loud(s.authorize)},
		{Name: CapturePayment, Perform: s.loud(s.capture)},
		{Name: VoidPayment, Undoes: []string{AuthorizePayment, CapturePayment}, Perform: s.loud(s.void)},
	}
}

// loud reports what no repetition will cure: somebody has to look.
func (s *Steps) loud(perform func(context.Context, *participant.Call) participant.Outcome) func(context.Context, *participant.Call) participant.Outcome {
	return func(ctx context.Context, call *participant.Call) participant.Outcome {
		out := perform(ctx, call)
		u, ok := out.(participant.Unknown)
		if !ok {
			return out
		}
		level := slog.LevelInfo
		if errors.Is(u.Err, provider.ErrNotOurs) || errors.Is(u.Err, provider.ErrConfiguration) || errors.Is(u.Err, errKeyForgot) ||
			errors.Is(u.Err, errKeysUsedUp) || errors.Is(u.Err, errUndecodable) {
			level = slog.LevelError
		}
		s.log.Log(ctx, level, "outcome at the provider is unknown", telemetry.LogOrderID, call.OrderID, telemetry.LogStep, call.StepName,
			telemetry.LogAttempt, call.Attempt, telemetry.LogError, u.Err)
		return out
	}
}

// providerKey is the nth key of an operation; the first is 0.
func providerKey(step uuid.UUID, operation string, n int) uuid.UUID {
	if n > 0 {
		operation += "." + strconv.Itoa(n)
	}
	return keys.ProviderKey(step, operation)
}

// chargeOf reads the command authorize_payment. The reason is why it can never be performed.
func chargeOf(order uuid.UUID, payload []byte) (payment.Charge, string) {
	var cmd paymentv1.AuthorizePayment
	if err := proto.Unmarshal(payload, &cmd); err != nil || cmd.GetOrderId() != order.String() || cmd.GetPaymentMethod() == "" {
		return payment.Charge{}, payment.ReasonInvalidCommand
	}
	amount, err := money.New(cmd.GetCurrency(), cmd.GetAmount())
	switch {
	case errors.Is(err, money.ErrCurrency):
		return payment.Charge{}, payment.ReasonCurrencyNotAccepted
	case err != nil:
		return payment.Charge{}, payment.ReasonAmountNotAccepted
	}
	return payment.Charge{
		OrderID: order, StepKey: keys.StepKey(order, AuthorizePayment), Amount: amount, Method: cmd.GetPaymentMethod(),
	}, ""
}

// authorized gives the provider's side of what the order's authorize_payment was about, for the other two steps. An error is
// not the provider's.
func (s *Steps) authorized(order uuid.UUID, auth participant.Record) (*provider.Payment, payment.Charge, error) {
	charge, reason := chargeOf(order, auth.Payload)
	if reason != "" {
		return nil, charge, fmt.Errorf("%w: %s: %s", errUndecodable, AuthorizePayment, reason)
	}
	p, err := s.cfg.Provider.Payment(charge)
	return p, charge, err
}

func unknown(in payment.Intent, err error) participant.Outcome {
	return participant.Unknown{Err: err, Reference: in.ID}
}
