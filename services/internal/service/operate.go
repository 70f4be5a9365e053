package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	deadletterv1 "github.com/throughline/throughline/proto/gen/throughline/deadletter/v1"
	doctorv1 "github.com/throughline/throughline/proto/gen/throughline/doctor/v1"
	outboxv1 "github.com/throughline/throughline/proto/gen/throughline/outbox/v1"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
	"github.com/throughline/throughline/services/internal/deadletters"
	"github.com/throughline/throughline/services/internal/doctor"
	"github.com/throughline/throughline/services/internal/republish"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/internal/trail"
	"github.com/throughline/throughline/services/internal/verify"
)

const (
	// statementTimeout bounds a statement, and with it a batch, which is one pipeline of short ones. It is below AckWait.
	statementTimeout = 20 * time.Second
	// settled is how long a connection to the broker must have lasted before inbox rows expire: after a reconnect every service
	// publishes what is pending again, which may be older than anything that waits in a stream.
	settled = 10 * time.Minute
)

// errUnsettled says that the broker has not been there for long enough.
var errUnsettled = errors.New("the connection to the broker is too young")

// operatorServices are the names of what operators call at every service.
func operatorServices() []string {
	return []string{
		deadletterv1.DeadLetterService_ServiceDesc.ServiceName, outboxv1.OutboxService_ServiceDesc.ServiceName,
		doctorv1.DoctorService_ServiceDesc.ServiceName, trailv1.TrailService_ServiceDesc.ServiceName,
	}
}

// sharedServices are the names of what operators and other services call at every service.
func sharedServices() []string { return []string{verifyv1.VerifyService_ServiceDesc.ServiceName} }

// rules are what must hold between the settings of any service and the topology.
func (c Config) rules() []doctor.Rule {
	rules := []doctor.Rule{{
		Name: "inbox rows outlive what can be published again", Shorter: "THROUGHLINE_OUTBOX_RETENTION", ShorterValue: c.OutboxRetention,
		Longer: "THROUGHLINE_INBOX_TTL", LongerValue: c.InboxTTL,
	}}
	for _, s := range topology.Streams(c.StreamReplicas) {
		if s.MaxAge > 0 {
			rules = append(rules, doctor.Rule{
				Name: "inbox rows outlive events", Shorter: "max age of stream " + s.Name, ShorterValue: s.MaxAge,
				Longer: "THROUGHLINE_INBOX_TTL", LongerValue: c.InboxTTL,
			})
		}
	}
	return rules
}

// consumerRules are what must hold for the consumers.
func consumerRules(consumers []Consumer) (rules []doctor.Rule) {
	for _, c := range consumers {
		wait := c.AckWait
		if wait == 0 {
			wait = messaging.DefaultAckWait
		}
		rules = append(rules, doctor.Rule{
			Name: "no message is delivered again while it is in hand", Shorter: doctor.BatchSetting, ShorterValue: statementTimeout,
			Longer: "ack wait of consumer " + c.Name, LongerValue: wait,
		})
	}
	return rules
}

// operate makes what operators use, and what keeps the tables of the message path in bounds.
func (s *server) operate(rt *Runtime, parts *Parts, processors []*inbox.Processor) (register func(grpc.ServiceRegistrar), components []Component, err error) {
	cfg := s.spec.Config
	rules := append(cfg.rules(), consumerRules(parts.Consumers)...)
	if err := doctor.Check(rules); err != nil {
		return nil, nil, fmt.Errorf("checking the settings: %w", err)
	}
	letters := inbox.NewDeadLetters(rt.Pool, cfg.InboxTTL, rt.Owner, s.log, processors...)
	patient := doctor.Patient{
		Pool: rt.Pool, Conn: rt.Conn, Rules: rules, InboxTTL: cfg.InboxTTL, BatchTime: statementTimeout, Streams: topology.Streams(cfg.StreamReplicas),
		Tables: append([]doctor.Table{
			{Name: "outbox_message", KeptFor: cfg.OutboxRetention}, {Name: "outbox_sent", KeptFor: cfg.OutboxRetention},
			{Name: "inbox", KeptFor: cfg.InboxTTL}, {Name: "inbox_failure", KeptFor: cfg.InboxTTL}, {Name: "dead_letter"},
		}, parts.Tables...),
	}
	reaper := &inbox.Reaper{Pool: rt.Pool, Owner: rt.Owner, TTL: cfg.InboxTTL, Logger: s.log, Floors: make(map[string]inbox.Floor)}
	for _, c := range parts.Consumers {
		patient.Consumers = append(patient.Consumers, c.ConsumerConfig)
		reaper.Floors[c.Name] = func(ctx context.Context) (time.Time, error) {
			if session := rt.Conn.Session(); !session.Connected || time.Since(session.Since) < settled {
				return time.Time{}, errUnsettled
			}
			return rt.Conn.AckFloor(ctx, c.Stream, c.Name)
		}
	}
	effects := verify.NewServer(verify.Config{
		Service: rt.Name, Pool: rt.Pool, Conn: rt.Conn, Streams: patient.Streams, Consumers: patient.Consumers, InboxTTL: cfg.InboxTTL,
		Orders: parts.Verify.Orders, Holdings: parts.Verify.Holdings,
	})
	components = []Component{
		Runs("dead-letters", func(stop, _ context.Context) error { return letters.Run(stop) }),
		Runs("inbox-reaper", func(stop, _ context.Context) error { return reaper.Run(stop) }),
	}
	if parts.Verify.Schedule != nil {
		schedule, err := parts.Verify.Schedule(effects.Local())
		if err != nil {
			return nil, nil, err
		}
		components = append(components, schedule)
	}
	archive := outbox.NewArchive(rt.Pool, rt.Conn, cfg.InboxTTL)
	register = func(r grpc.ServiceRegistrar) {
		deadletters.Register(r, letters)
		republish.Register(r, archive)
		doctor.Register(r, patient)
		trail.Register(r, trailConfig(rt, parts, letters, cfg.OutboxRetention))
		effects.Register(r)
	}
	return register, components, nil
}

// trailConfig is what the service's part of an order's story is told from.
func trailConfig(rt *Runtime, parts *Parts, letters *inbox.DeadLetters, retention time.Duration) trail.Config {
	c := trail.Config{
		Service: rt.Name, Pool: rt.Pool, Letters: letters, Retention: retention, Own: parts.Trail.Own, Participant: parts.Trail.Participant,
		Peer: parts.Trail.Peer, Webhooks: parts.Trail.Webhooks, Operations: parts.Trail.Operations, Undos: parts.Trail.Undos, Logger: rt.Logger,
	}
	for _, consumer := range parts.Consumers {
		c.Consumers = append(c.Consumers, consumer.Name)
	}
	if c.Webhooks != "" {
		c.Consumers = append(c.Consumers, c.Webhooks) // behind the consumer of commands
	}
	return c
}
