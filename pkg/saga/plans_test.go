package saga_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/saga"
)

// TestVersionsSideBySide has sagas of the first version under way while the second is there, and takes both to their ends.
func TestVersionsSideBySide(t *testing.T) {
	t.Parallel()
	f := newFixture(t, definition(slow), parallel(slow))
	first, second := f.begin(1)[0], f.newID()
	f.upTo(first, "ship")
	if err := f.queueBirths([]*saga.Birth{f.birth(t.Context(), parallel(slow), second)}); err != nil {
		t.Fatalf("beginning the second version: %v", err)
	}
	// In one transaction, and by one batch of timers.
	f.apply(reply(second, "reserve", saga.OutcomeDone, uuid.Nil), reply(first, "ship", saga.OutcomeDone, uuid.Nil))
	list := f.answering(done, nil)
	f.pass(first, 5*time.Hour)
	f.pass(second, 5*time.Hour)
	if got := f.fire(); got != 2 {
		t.Errorf("timers fired: got %d, want 2", got)
	}
	list.mu.Lock()
	if got := len(list.steps); got != 3 {
		t.Errorf("asked about: got %v, want capture, authorize and ship", list.steps)
	}
	list.mu.Unlock()
	f.apply(reply(second, "capture", saga.OutcomeDone, uuid.Nil), reply(first, "dispatch", saga.OutcomeDone, uuid.Nil))
	f.apply(reply(first, "thank", saga.OutcomeDone, uuid.Nil), reply(second, "thank", saga.OutcomeDone, uuid.Nil), reply(second, "dispatch", saga.OutcomeDone, uuid.Nil))
	f.wantStatus(first, saga.Completed)
	f.wantStatus(second, saga.Completed)
	for id, want := range map[uuid.UUID]int{first: 1, second: 2} {
		if got := f.get(id).Version; got != want {
			t.Errorf("version of saga %s: got %d, want %d", id, got, want)
		}
	}
}

// changed is the first version with other steps.
func changed() *saga.Definition[order] {
	return saga.MustDefine("place-order", 1, saga.Pivot("capture", command("payment", "capture")).Within(slow))
}

// TestUnknownPlansAreLeftAlone has engines that lack a version, or have another definition of the same version.
func TestUnknownPlansAreLeftAlone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		knows *saga.Definition[order]
		want  string
	}{
		"another version":         {parallel(slow), "2 unfinished sagas"},
		"other steps, same label": {changed(), "2 unfinished sagas, begun with other steps than this version has here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			ids := f.begin(4)
			id, parked, ended := ids[0], ids[1], ids[2]
			f.exec(`DELETE FROM saga_timer WHERE saga_id = $1`, ids[3])
			f.exec(`DELETE FROM saga_instance WHERE saga_id = $1`, ids[3])
			f.upTo(parked, "ship")
			f.apply(reply(parked, "ship", saga.OutcomeRefused, uuid.Nil), reply(parked, "void", saga.OutcomeRefused, uuid.Nil))
			f.exec(`DELETE FROM saga_timer WHERE saga_id = $1`, parked)
			f.upTo(ended, "")
			old := f.newEngine(f.pool, rows{}, test.knows)

			// Timers do not fire, and stay as they are.
			list := f.answering(done, nil)
			f.pass(id, 2*time.Hour)
			var before time.Time
			due := func() (at time.Time) {
				if err := f.pool.QueryRow(t.Context(), `SELECT due_at FROM saga_timer WHERE saga_id = $1`, id).Scan(&at); err != nil {
					t.Fatalf("reading the timer: %v", err)
				}
				return at
			}
			before = due()
			for range 3 {
				if n, err := old.FireTimers(t.Context()); n != 0 || err != nil {
					t.Errorf("timers fired without the definition: got %d, %v, want none", n, err)
				}
			}
			list.want(t)
			if got := due(); !got.Equal(before) {
				t.Errorf("timer: got due at %s, want %s as before", got, before)
			}

			// Replies wait, beside what is known.
			err := old.ApplyReplies(t.Context(), []messaging.Delivery{reply(id, "authorize", saga.OutcomeDone, uuid.Nil)})
			if !errors.Is(err, inbox.ErrElsewhere) || !errors.Is(err, saga.ErrUnknownDefinition) || errors.Is(err, inbox.ErrPermanent) {
				t.Errorf("reply without the definition: got %v, want %v", err, inbox.ErrElsewhere)
			}
			if _, err := old.Cancel(t.Context(), id, nil); !errors.Is(err, saga.ErrUnknownDefinition) {
				t.Errorf("cancelling without the definition: got %v, want %v", err, saga.ErrUnknownDefinition)
			}
			if in := f.get(id); in.Revision != 1 {
				t.Errorf("revision of a saga that was left alone: got %d, want 1", in.Revision)
			}

			// It is said how many there are: the one under way and the one that waits for a person, not the one that has ended.
			found, err := old.CountUnknown(t.Context())
			if err != nil || len(found) != 1 || found[0].Name != "place-order" || found[0].Version != 1 || found[0].Sagas != 2 || !strings.Contains(found[0].String(), test.want) {
				t.Errorf("unknown: got %v, %v, want %s", found, err, test.want)
			}
			err = old.RefuseUnknown(t.Context())
			if !errors.Is(err, saga.ErrUnknownDefinition) || !strings.Contains(err.Error(), "place-order version 1") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("refusing: got %v, want an error that names place-order version 1, and %s", err, test.want)
			}
			if err := f.engine.RefuseUnknown(t.Context()); err != nil {
				t.Errorf("refusing with the definition: got %v, want nil", err)
			}

			// Who knows them goes on.
			f.fire()
			list.want(t, "authorize")
			f.apply(reply(id, "ship", saga.OutcomeDone, uuid.Nil))
			if got := f.get(id).Steps[2].Phase; got != saga.Sent {
				t.Errorf("pivot with the definition: got %q, want it sent", got)
			}
		})
	}
}

// TestEnginesOfTwoReleases runs the timers of two releases side by side: neither keeps those of the other waiting.
func TestEnginesOfTwoReleases(t *testing.T) {
	t.Parallel()
	f := newFixture(t, definition(slow), parallel(slow))
	id := f.newID()
	if err := f.queueBirths([]*saga.Birth{f.birth(t.Context(), parallel(slow), id)}); err != nil {
		t.Fatalf("beginning: %v", err)
	}
	asked := make(chan string, 10)
	f.ask = func(_ context.Context, _ string, _ uuid.UUID, step string) (saga.Answer, error) {
		asked <- step
		return running, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	stop := func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("running timers: got %v, want nil after a stop", err)
			}
		}
	}
	old := f.newEngine(f.pool, rows{}, definition(slow))
	go func() { ended <- old.RunTimers(ctx) }()
	for !strings.Contains(f.logged.String(), "sagas are left alone") { // it has begun, and says so at once
		if ctx.Err() != nil {
			t.Fatal("the old release: got nothing said, want the sagas that it leaves alone")
		}
		<-time.After(time.Millisecond)
	}
	for f.number(`SELECT count(*) FROM lease WHERE name LIKE 'saga_timer/%'`) < 1 {
		<-time.After(time.Millisecond)
	}
	f.pass(id, 2*time.Hour)
	go func() { ended <- f.engine.RunTimers(ctx) }()
	if got := <-asked; got != "reserve" {
		t.Errorf("asked about: got %s, want reserve", got)
	}
	stop()
	if !strings.Contains(f.logged.String(), "saga=place-order version=2") || !strings.Contains(f.logged.String(), "sagas=1") {
		t.Errorf("log:\n got %s\nwant the version and how many", f.logged)
	}
}

func TestPlanText(t *testing.T) {
	t.Parallel()
	p := saga.Plan{Name: "place-order", Version: 2, Hash: []byte{0xab, 1}}
	if got, want := p.String(), "place-order version 2 (ab01)"; got != want {
		t.Errorf("plan: got %q, want %q", got, want)
	}
	in := parallel(slow).New(uuid.New(), keys.NewMessageID().String())
	if p.Of(&in) {
		t.Errorf("plan of another hash: got that of the saga, want not")
	}
}
