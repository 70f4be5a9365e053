package verify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
)

const (
	// DefaultEvery is how long after the end of a run the next one begins.
	DefaultEvery = 5 * time.Minute
	// overlap is how far a run looks back behind where the one before has begun: longer than a transaction lasts, whose messages have earlier ids,
	// and than clocks differ.
	overlap = 2 * time.Minute
	// calm is the part of the time for which a run rests: what it asks takes a tenth of one connection's time.
	calm = 0.9

	scheduleLease = 30 * time.Second
	scheduleRetry = 30 * time.Second
)

// Remembered is what a run leaves to the next one.
type Remembered struct {
	// CoveredUntil is up to when everything was looked at.
	CoveredUntil time.Time
	// Violations are those that are known. Each run looks at their orders again.
	Violations []Violation
	// Ago is how long ago the last run ended.
	Ago time.Duration
}

// Memory keeps what runs leave, for all instances.
type Memory interface {
	Last(ctx context.Context) (Remembered, error)
	// Save stores what a run leaves that took so long; complete says that it could look at all.
	Save(ctx context.Context, r Remembered, complete bool, took time.Duration) error
	// State is for metrics.
	State(ctx context.Context) (State, error)
}

// State is how proofs of effects go.
type State struct {
	// Counts are the known violations by rule.
	Counts map[Rule]int
	// Age is how long ago the last run ended that could look at all; Took is how long the last one took.
	Age, Took time.Duration
}

// Schedule runs a Verifier again and again, in one of several instances. Each run looks at what has changed since the one before. What it
// finds is logged and counted.
type Schedule struct {
	Verifier *Verifier
	Memory   Memory
	// Pool has the lease by which one instance does it.
	Pool  *pgxpool.Pool
	Owner string
	// Every is how long after the end of a run the next one begins.
	Every  time.Duration
	Logger *slog.Logger
	Meter  metric.Meter

	runs metric.Int64Counter
}

// NewSchedule makes the instruments of a schedule.
func NewSchedule(s Schedule) (*Schedule, error) {
	var err error
	if s.runs, err = s.Meter.Int64Counter("throughline.verify.runs", metric.WithUnit("{run}"),
		metric.WithDescription("Proofs of effects, by outcome: clean, violations, or incomplete where something could not be asked.")); err != nil {
		return nil, fmt.Errorf("making an instrument: %w", err)
	}
	for _, o := range []Outcome{Clean, Violated, Incomplete} {
		s.runs.Add(context.Background(), 0, withOutcome(o)) // rates have a beginning
	}
	violations, err := s.Meter.Int64ObservableGauge("throughline.verify.violations", metric.WithUnit("{violation}"),
		metric.WithDescription("Broken rules about effects that are known and not yet seen to be mended, by rule. It must be 0."))
	if err != nil {
		return nil, fmt.Errorf("making a gauge: %w", err)
	}
	age, err := s.Meter.Float64ObservableGauge("throughline.verify.age", metric.WithUnit("s"),
		metric.WithDescription("How long ago the last proof of effects ended that could look at all."))
	if err != nil {
		return nil, fmt.Errorf("making a gauge: %w", err)
	}
	duration, err := s.Meter.Float64ObservableGauge("throughline.verify.duration", metric.WithUnit("s"),
		metric.WithDescription("How long the last proof of effects took, most of which it rested."))
	if err != nil {
		return nil, fmt.Errorf("making a gauge: %w", err)
	}
	_, err = s.Meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		state, err := s.Memory.State(ctx)
		if err != nil {
			return fmt.Errorf("measuring proofs of effects: %w", err)
		}
		for _, rule := range Rules() {
			o.ObserveInt64(violations, int64(state.Counts[rule]), metric.WithAttributes(attribute.String("rule", string(rule))))
		}
		o.ObserveFloat64(age, state.Age.Seconds())
		o.ObserveFloat64(duration, state.Took.Seconds())
		return nil
	}, violations, age, duration)
	if err != nil {
		return nil, fmt.Errorf("observing proofs of effects: %w", err)
	}
	return &s, nil
}

func withOutcome(o Outcome) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(telemetry.Outcome.String(string(o))))
}

// Run runs until stop ends.
func (s *Schedule) Run(stop context.Context) error {
	lease := postgres.NewLease(s.Pool, "verify", s.Owner, scheduleLease)
	lease.Logger = s.Logger
	err := lease.Run(stop, func(ctx context.Context, _ int64) error {
		for ctx.Err() == nil {
			if err := s.once(ctx); err != nil && ctx.Err() == nil {
				s.Logger.WarnContext(ctx, "effects not verified, trying again", telemetry.LogError, err)
				wait(ctx, min(scheduleRetry, s.Every))
			}
		}
		return ctx.Err()
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// once waits for the next run to be due, and makes it.
func (s *Schedule) once(ctx context.Context) error {
	last, err := s.Memory.Last(ctx)
	if err != nil {
		return err
	}
	if early := s.Every - last.Ago; early > 0 {
		wait(ctx, early)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to stop, which is no failure
		}
	}
	opts := Options{Since: last.CoveredUntil.Add(-overlap), Share: calm}
	for _, v := range last.Violations {
		if id, err := uuid.Parse(v.OrderID); err == nil {
			opts.Known = append(opts.Known, id)
		}
	}
	report, err := s.Verifier.Run(untraced(ctx), opts)
	if err != nil {
		return err
	}
	s.runs.Add(ctx, 1, withOutcome(report.Outcome()))
	s.tell(ctx, report)
	next := Remembered{CoveredUntil: report.Began, Violations: report.Violations}
	if !report.Complete() {
		next = Remembered{CoveredUntil: last.CoveredUntil, Violations: joined(last.Violations, report.Violations)}
	}
	return s.Memory.Save(ctx, next, report.Complete(), report.Took)
}

// joined keeps what is known beside what was found: a run that could not look at all says nothing of the rest.
func joined(known, found []Violation) []Violation {
	type name struct {
		rule  Rule
		order string
	}
	seen := make(map[name]bool)
	for _, v := range found {
		seen[name{v.Rule, v.OrderID}] = true
	}
	all := found
	for _, v := range known {
		if n := (name{v.Rule, v.OrderID}); !seen[n] {
			seen[n] = true
			all = append(all, v)
		}
	}
	return all
}

// tell logs what was found: a line for each violation, and one for the run.
func (s *Schedule) tell(ctx context.Context, r *Report) {
	for _, v := range r.Violations {
		s.Logger.ErrorContext(ctx, "effects do not agree", "rule", string(v.Rule), telemetry.LogOrderID, v.OrderID, "detail", v.Detail)
	}
	level := slog.LevelInfo
	for _, g := range r.Gaps {
		level = slog.LevelWarn
		s.Logger.WarnContext(ctx, "effects not verified in part", "service", g.Service, "what", g.What, telemetry.LogError, g.Why)
	}
	s.Logger.Log(ctx, level, "effects verified", "outcome", string(r.Outcome()), "violations", len(r.Violations), "orders", r.Orders,
		"messages", r.Messages, "payments", r.Payments, "parcels", r.Parcels, "in_flight", r.InFlight, "open", r.Open, "took", r.Took)
}

// untraced gives a context under which nothing is sampled: a run is thousands of calls that say nothing of any order.
func untraced(ctx context.Context) context.Context {
	var c trace.SpanContextConfig
	_, _ = rand.Read(c.TraceID[:]) // it does not fail
	_, _ = rand.Read(c.SpanID[:])
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(c))
}
