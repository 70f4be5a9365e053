package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	deadletterv1 "github.com/throughline/throughline/proto/gen/throughline/deadletter/v1"
	doctorv1 "github.com/throughline/throughline/proto/gen/throughline/doctor/v1"
	outboxv1 "github.com/throughline/throughline/proto/gen/throughline/outbox/v1"
	"github.com/throughline/throughline/services/internal/doctor"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/internal/topology"
)

const operatorCredential = "test-operator"

// A service whose inbox forgets what can still arrive does not start, and says which two settings disagree.
func TestSettingsThatDisagree(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		config    service.Config
		consumers []service.Consumer
		want      []string
	}{
		"events outlive inbox rows": {
			config: service.Config{InboxTTL: 8 * 24 * time.Hour}, want: []string{"max age of stream EVT", "THROUGHLINE_INBOX_TTL"},
		},
		"republish outlives inbox rows": {
			config: service.Config{OutboxRetention: 600 * time.Hour}, want: []string{"THROUGHLINE_OUTBOX_RETENTION", "THROUGHLINE_INBOX_TTL"},
		},
		"ack wait within the time of a batch": {
			consumers: []service.Consumer{{ConsumerConfig: messaging.ConsumerConfig{Stream: topology.Commands, Name: "c", AckWait: time.Second}}},
			want:      []string{doctor.BatchSetting, "ack wait of consumer c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.config.DatabaseURL, tt.config.NATSURL = pgtest.URL(t), messagingtest.New(t).URL()
			r := start(t, service.Spec{Config: tt.config, Build: func(context.Context, *service.Runtime) (service.Parts, error) {
				return service.Parts{Consumers: tt.consumers}, nil
			}})
			select {
			case err := <-r.err:
				if !errors.Is(err, doctor.ErrDisagree) {
					t.Fatalf("got %v, want %v", err, doctor.ErrDisagree)
				}
				for _, setting := range tt.want {
					if !strings.Contains(err.Error(), setting) {
						t.Errorf("got %v, want it to name %q", err, setting)
					}
				}
			case <-r.ready:
				t.Fatal("the service started, want an error")
			case <-time.After(patience):
				t.Fatal("the service neither started nor ended")
			}
		})
	}
}

// operated is a service with one consumer of commands, that can be told to fail.
type operated struct {
	*running
	rt     *service.Runtime
	broken atomic.Bool
	done   chan uuid.UUID
}

func startOperated(t *testing.T) *operated {
	t.Helper()
	o := &operated{done: make(chan uuid.UUID, 100)}
	o.broken.Store(true)
	built := make(chan *service.Runtime, 1)
	cfg := service.Config{DatabaseURL: pgtest.URL(t), NATSURL: messagingtest.New(t).URL(), OperatorCredential: operatorCredential}
	o.running = start(t, service.Spec{Config: cfg, Build: func(_ context.Context, rt *service.Runtime) (service.Parts, error) {
		built <- rt
		return service.Parts{Consumers: []service.Consumer{{
			ConsumerConfig: messaging.ConsumerConfig{Stream: topology.Commands, Name: "c", Filter: []string{"cmd.test.*"}},
			Recorded:       true,
			Apply: func(ctx context.Context, batch []messaging.Delivery) error {
				if o.broken.Load() {
					return fmt.Errorf("%w: broken", inbox.ErrPermanent)
				}
				var b pgx.Batch
				var ids []uuid.UUID
				for _, d := range batch {
					ids = append(ids, d.ID)
				}
				inbox.QueueMarks(&b, "c", ids)
				if err := postgres.SendAtomic(ctx, rt.Pool, &b); err != nil {
					return err
				}
				for _, id := range ids {
					o.done <- id
				}
				return nil
			},
		}}}, nil
	}})
	o.awaitReady()
	o.rt = <-built
	return o
}

// send writes one message and hands it off.
func (o *operated) send(m messaging.Message) messaging.Message {
	o.t.Helper()
	a := outbox.Aggregate{ID: uuid.New()}
	chains := []outbox.Chain{a.Begin(uuid.Nil)}
	m = a.Append(&chains[0], m)
	var b pgx.Batch
	if err := outbox.Queue(&b, chains); err != nil {
		o.t.Fatal(err)
	}
	if err := postgres.SendAtomic(o.t.Context(), o.rt.Pool, &b); err != nil {
		o.t.Fatal(err)
	}
	o.rt.Relay.HandOff(chains)
	return m
}

func (o *operated) command() messaging.Message {
	return o.send(messaging.Message{Kind: messaging.Command, Subject: "cmd.test.act", Type: "test.Act", StepName: "act", StepKey: uuid.New()})
}

func (o *operated) eventually(what string, holds func() bool) {
	o.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			o.t.Fatalf("waited %s until %s", patience, what)
		}
	}
}

// TestOperators looks at a dead letter, replays it, sends what was sent again, and sees the doctor; all with the operator credential only.
func TestOperators(t *testing.T) {
	t.Parallel()
	o := startOperated(t)
	m := o.command()
	asService, err := grpcx.Dial(grpcx.ClientConfig{Addr: o.addr.GRPC, Credential: credential})
	if err != nil {
		t.Fatal(err)
	}
	defer asService.Close()
	if _, err := deadletterv1.NewDeadLetterServiceClient(asService).ListDeadLetters(t.Context(), &deadletterv1.ListDeadLettersRequest{}); grpcx.ReasonOf(err) != grpcx.Unauthenticated {
		t.Errorf("listing dead letters with the service credential: got %v, want %s", err, grpcx.Unauthenticated)
	}
	conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: o.addr.GRPC, Credential: operatorCredential})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	letters := deadletterv1.NewDeadLetterServiceClient(conn)
	var list *deadletterv1.ListDeadLettersResponse
	o.eventually("there is a dead letter", func() bool {
		list, err = letters.ListDeadLetters(t.Context(), &deadletterv1.ListDeadLettersRequest{OrderId: m.AggregateID.String()})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.GetDeadLetters()) == 1
	})
	l := list.GetDeadLetters()[0]
	if l.GetMessageId() != m.ID.String() || l.GetState() != "dead" || l.GetType() != m.Type || l.GetStepName() != "act" || !strings.Contains(l.GetError(), "broken") {
		t.Errorf("got %v, want the message, its type, its step and the error", l)
	}
	replay := func(dry bool, want string) {
		t.Helper()
		resp, err := letters.ReplayDeadLetter(t.Context(), &deadletterv1.ReplayDeadLetterRequest{Id: l.GetId(), DryRun: dry, Actor: "someone", Reason: "a test"})
		if err != nil || resp.GetReport().GetOutcome() != want {
			t.Errorf("replay, dry %t: got %v, %v, want %s", dry, resp, err, want)
		}
	}
	if _, err := letters.ReplayDeadLetter(t.Context(), &deadletterv1.ReplayDeadLetterRequest{Id: l.GetId()}); grpcx.ReasonOf(err) != grpcx.RequestInvalid {
		t.Errorf("a replay by nobody: got %v, want %s", err, grpcx.RequestInvalid)
	}
	replay(true, "would")
	replay(false, "failed")
	o.broken.Store(false)
	replay(false, "done")
	if got := <-o.done; got != m.ID {
		t.Errorf("got message %s handled, want %s", got, m.ID)
	}
	replay(false, "refused")
	shown, err := letters.GetDeadLetter(t.Context(), &deadletterv1.GetDeadLetterRequest{Id: l.GetId()})
	if err != nil || shown.GetDeadLetter().GetState() != "replayed" || len(shown.GetActions()) != 2 || shown.GetActions()[1].GetActor() != "someone" {
		t.Errorf("got %v, %v, want it replayed, after two actions of someone", shown, err)
	}

	sent := outboxv1.NewOutboxServiceClient(conn)
	selection := &outboxv1.Selection{OrderId: m.AggregateID.String()}
	o.eventually("the message has left the outbox", func() bool {
		resp, err := sent.ListSent(t.Context(), &outboxv1.ListSentRequest{Selection: selection})
		if err != nil {
			t.Fatal(err)
		}
		return len(resp.GetMessages()) == 1 && resp.GetMessages()[0].GetSkipped() == ""
	})
	again, err := sent.Republish(t.Context(), &outboxv1.RepublishRequest{Selection: selection, Actor: "someone", Reason: "a test"})
	if err != nil || len(again.GetMessages()) != 1 || again.GetMessages()[0].GetNewSequence() <= again.GetMessages()[0].GetStreamSequence() {
		t.Errorf("got %v, %v, want the message at a new place", again, err)
	}

	examined, err := doctorv1.NewDoctorServiceClient(conn).Examine(t.Context(), &doctorv1.ExamineRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for _, r := range examined.GetRules() {
		found[r.GetShorter()] = true
		if r.GetBroken() {
			t.Errorf("got a broken rule %v, want none", r)
		}
	}
	for _, setting := range []string{"THROUGHLINE_OUTBOX_RETENTION", "max age of stream EVT", "max age of stream EVT at the broker", doctor.BatchSetting} {
		if !found[setting] {
			t.Errorf("got rules about %v, want one about %q", found, setting)
		}
	}
	if len(examined.GetConsumers()) != 1 || examined.GetConsumers()[0].GetError() != "" || len(examined.GetTables()) < 5 || examined.GetOpenDeadLetters() != 0 {
		t.Errorf("got %v, want one consumer, all tables and no dead letter", examined)
	}
	quick, err := doctorv1.NewDoctorServiceClient(conn).Examine(t.Context(), &doctorv1.ExamineRequest{WithoutTables: true})
	if err != nil || len(quick.GetTables()) != 0 || len(quick.GetConsumers()) != 1 || len(quick.GetRules()) != len(examined.GetRules()) {
		t.Errorf("without tables: got %v, %v, want the same otherwise", quick, err)
	}
}

// TestDeletedStreamIsMadeAgain deletes streams under a running service, without a disconnect.
func TestDeletedStreamIsMadeAgain(t *testing.T) {
	t.Parallel()
	o := startOperated(t)
	o.broken.Store(false)
	first := o.command()
	if got := <-o.done; got != first.ID {
		t.Fatalf("got %s, want %s", got, first.ID)
	}
	for _, stream := range []string{topology.Commands, topology.Events} {
		if err := o.rt.Conn.JetStream().DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	want := map[uuid.UUID]bool{o.command().ID: true, o.command().ID: true}
	event := o.send(messaging.Message{Kind: messaging.Event, Subject: "evt.test.happened", Type: "test.Happened"})
	for len(want) > 0 {
		select {
		case id := <-o.done:
			delete(want, id)
		case <-time.After(patience):
			t.Fatalf("the commands %v did not arrive over the stream that was deleted", want)
		}
	}
	o.eventually("the event is in the stream again", func() bool {
		js := o.rt.Conn.JetStream()
		s, err := js.Stream(t.Context(), topology.Events)
		if err != nil {
			return false
		}
		raw, err := s.GetLastMsgForSubject(t.Context(), "evt.test.happened")
		return err == nil && raw.Header.Get(messaging.HeaderCEID) == event.ID.String()
	})
}
