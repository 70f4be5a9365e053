package saga_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/saga/sagatest"
)

func TestDefineRefuses(t *testing.T) {
	t.Parallel()
	var (
		a, undoA = command("p", "a"), command("p", "undo_a")
		b, undoB = command("p", "b"), command("p", "undo_b")
		good     = saga.Compensatable("a", a, undoA)
		pivot    = saga.Pivot("pivot", command("p", "pivot"))
		list     = func(steps ...saga.Step[order]) []saga.Step[order] { return steps }
		empty    = func(order) saga.Command { return saga.To("p", "a", nil) }
	)
	tests := map[string]struct {
		name    string
		version int
		steps   []saga.Step[order]
		want    string
	}{
		"no name":                        {"", 1, list(good), "needs a name"},
		"no version":                     {"s", 0, list(good), "a version above 0"},
		"no steps":                       {"s", 1, nil, "and a step"},
		"a step of nothing":              {"s", 1, list(saga.Step[order]{}), "needs a name and an action"},
		"a step without a name":          {"s", 1, list(saga.Compensatable("", a, undoA)), "needs a name and an action"},
		"no action":                      {"s", 1, list(saga.Compensatable("a", nil, undoA)), "needs a name and an action"},
		"an action of another name":      {"s", 1, list(saga.Compensatable("a", b, undoA)), "must name the step"},
		"an action at nobody":            {"s", 1, list(saga.Compensatable("a", command("", "a"), undoA)), "a participant"},
		"an action without a payload":    {"s", 1, list(saga.Compensatable("a", empty, undoA)), "have a payload"},
		"no undo":                        {"s", 1, list(saga.Compensatable("a", a, nil)), "needs an undo"},
		"an undo without a name":         {"s", 1, list(saga.Compensatable("a", a, command("p", ""))), "must name itself"},
		"an undo at nobody":              {"s", 1, list(saga.Compensatable("a", a, command("", "undo_a"))), "a participant"},
		"an undo without a payload":      {"s", 1, list(saga.Compensatable("a", a, func(order) saga.Command { return saga.To("p", "undo_a", nil) })), "have a payload"},
		"one name twice":                 {"s", 1, list(good, saga.Compensatable("a", a, undoB)), `"a" is used twice`},
		"one undo twice":                 {"s", 1, list(good, saga.Compensatable("b", b, undoA)), `"undo_a" is used twice`},
		"an undo named like its action":  {"s", 1, list(saga.Compensatable("a", a, a)), `"a" is used twice`},
		"an undo named like another":     {"s", 1, list(good, saga.Compensatable("undo_a", command("p", "undo_a"), undoB)), `"undo_a" is used twice`},
		"a dot in a step":                {"s", 1, list(saga.Pivot("a.b", command("p", "a.b"))), "part of a subject"},
		"a star in a participant":        {"s", 1, list(saga.Pivot("a", command("*", "a"))), "part of a subject"},
		"a space in an undo":             {"s", 1, list(saga.Compensatable("a", a, command("p", "undo a"))), "part of a subject"},
		"retriable first":                {"s", 1, list(saga.Retriable("a", a)), "does not follow a pivot"},
		"retriable before the pivot":     {"s", 1, list(good, saga.Retriable("b", b), pivot), "does not follow a pivot"},
		"compensatable behind the pivot": {"s", 1, list(good, pivot, saga.Compensatable("b", b, undoB)), "only retriable steps may follow"},
		"two pivots":                     {"s", 1, list(good, pivot, saga.Pivot("b", b)), "only retriable steps may follow"},
		"a pivot that nothing undoes":    {"s", 1, list(pivot, saga.Retriable("b", b)), "no step before pivot"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := saga.Define(test.name, test.version, test.steps...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error: got %v, want one that says %q", err, test.want)
			}
		})
	}
}

func TestDefineAccepts(t *testing.T) {
	t.Parallel()
	tests := map[string][]saga.Step[order]{
		"one step that can be undone": {saga.Compensatable("a", command("p", "a"), command("p", "undo_a"))},
		"a pivot alone":               {saga.Pivot("a", command("p", "a"))},
		"a pivot last":                {saga.Compensatable("a", command("p", "a"), command("q", "undo_a")), saga.Pivot("b", command("p", "b"))},
	}
	for name, steps := range tests {
		if _, err := saga.Define("s", 1, steps...); err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Errorf("MustDefine of nothing: got a definition, want a panic")
		}
	}()
	saga.MustDefine[order]("s", 1)
}

func TestDefinition(t *testing.T) {
	t.Parallel()
	d := definition(timing)
	if got, want := d.Participants(), []string{"payment", "shipping", "mail"}; !slices.Equal(got, want) {
		t.Errorf("participants: got %v, want %v", got, want)
	}
	if d.Name() != "place-order" || d.Version() != 1 {
		t.Errorf("name and version: got %s %d, want place-order 1", d.Name(), d.Version())
	}
	if !bytes.Equal(d.Hash(), definition(slow).Hash()) {
		t.Errorf("hash under another timing: got another, want the same, since no stored saga depends on it")
	}
	others := map[string]*saga.Definition[order]{
		"another version":     saga.MustDefine("s", 2, saga.Pivot("a", command("p", "a"))),
		"another name":        saga.MustDefine("r", 1, saga.Pivot("a", command("p", "a"))),
		"another step":        saga.MustDefine("s", 1, saga.Pivot("b", command("p", "b"))),
		"another participant": saga.MustDefine("s", 1, saga.Pivot("a", command("q", "a"))),
		"another kind":        saga.MustDefine("s", 1, saga.Compensatable("a", command("p", "a"), command("p", "u"))),
		"another undo":        saga.MustDefine("s", 1, saga.Compensatable("a", command("p", "a"), command("p", "v"))),
		"itself":              saga.MustDefine("s", 1, saga.Pivot("a", command("p", "a"))),
	}
	hashes := make(map[string]string)
	for name, d := range others {
		if same, ok := hashes[string(d.Hash())]; ok {
			t.Errorf("hash of %s: got that of %s, want another", name, same)
		}
		hashes[string(d.Hash())] = name
	}
}

// TestDeadlines shows how the time between two questions grows.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	const ask, most, budget = time.Second, 10 * time.Second, 100 * time.Second
	d := definition(saga.Timing{Ask: ask, AskMax: most, Budget: budget})
	delays := make(map[time.Duration]bool)
	for n := range 50 {
		id := uuid.NewSHA1(uuid.NameSpaceOID, []byte{byte(n)})
		now := sagatest.Epoch
		in, _, err := d.Advance(d.New(id, "k"), wrapperspb.String("o"), saga.Started{}, now)
		if err != nil {
			t.Fatalf("beginning: %v", err)
		}
		again, _, _ := d.Advance(d.New(id, "k"), wrapperspb.String("o"), saga.Started{}, now)
		if in.Steps[0].Due != again.Steps[0].Due {
			t.Fatalf("deadline of one saga: got %s and %s, want one", in.Steps[0].Due, again.Steps[0].Due)
		}
		want := ask
		for in.Steps[0].Due.Before(sagatest.Epoch.Add(budget)) {
			delay := in.Steps[0].Due.Sub(now)
			if delay < want*8/10 || delay > want*12/10 {
				t.Fatalf("delay %d: got %s, want %s give or take a fifth", in.Steps[0].Asked, delay, want)
			}
			if delay != delay.Truncate(time.Microsecond) {
				t.Fatalf("delay %d: got %s, want whole microseconds", in.Steps[0].Asked, delay)
			}
			delays[delay] = true
			want = min(2*want, most)
			now = in.Steps[0].Due
			if in, _, err = d.Advance(in, wrapperspb.String("o"), saga.Asked{Step: "authorize", Answer: silent}, now); err != nil {
				t.Fatalf("answering: %v", err)
			}
		}
		if got := in.Steps[0].Due.Sub(sagatest.Epoch); got != budget {
			t.Fatalf("last deadline: got %s after the beginning, want the end of the budget, %s", got, budget)
		}
	}
	if len(delays) < 400 { // 50 sagas with some 13 deadlines each
		t.Errorf("different delays: got %d, want hardly two alike", len(delays))
	}
}

// TestDeadlinesAtTheEdges has timings that arithmetic could stumble over.
func TestDeadlinesAtTheEdges(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		timing    saga.Timing
		low, high time.Duration
	}{
		"defaults":           {saga.Timing{}, 4 * time.Second, 6 * time.Second},
		"below zero":         {saga.Timing{Ask: -1, AskMax: -1, Budget: -1}, 4 * time.Second, 6 * time.Second},
		"a year":             {saga.Timing{Ask: 365 * 24 * time.Hour, AskMax: 100 * 365 * 24 * time.Hour, Budget: 200 * 365 * 24 * time.Hour}, 290 * 24 * time.Hour, 440 * 24 * time.Hour},
		"more than the most": {saga.Timing{Ask: time.Hour, AskMax: time.Minute, Budget: time.Hour}, 48 * time.Second, 72 * time.Second},
		"nothing":            {saga.Timing{Ask: 1, AskMax: 1, Budget: 1}, 0, time.Microsecond},
	}
	for name, test := range tests {
		s := sagatest.Start(t, definition(test.timing), wrapperspb.String("o")).Sent("authorize")
		if got := s.Instance().Steps[0].Due.Sub(s.Now()); got < test.low || got > test.high {
			t.Errorf("%s: first delay: got %s, want %s to %s", name, got, test.low, test.high)
		}
		s.Answer("authorize", waiting)
		for range 100 {
			before := s.Now()
			s.PassUntilDue().Answer("authorize", waiting)
			if s.Now().Before(before) {
				t.Fatalf("%s: deadline: got one in the past", name)
			}
		}
	}
}

// TestSeen shows what our next command to a participant proves to it.
func TestSeen(t *testing.T) {
	t.Parallel()
	d := definition(timing)
	in, _, err := d.Advance(d.New(sagatest.ID, "k"), wrapperspb.String("o"), saga.Started{}, sagatest.Epoch)
	if err != nil {
		t.Fatalf("beginning: %v", err)
	}
	older, newer := uuid.UUID{0: 1}, uuid.UUID{0: 2}
	for _, input := range []saga.Replied{
		{Step: "authorize", Outcome: saga.OutcomeDone, MessageID: newer},
		{Step: "authorize", Outcome: saga.OutcomeWaiting, MessageID: older},
		{Step: "nonsense", Outcome: saga.OutcomeDone, MessageID: uuid.UUID{0: 9}},
	} {
		before := in.Seen["payment"]
		next, _, err := d.Advance(in, wrapperspb.String("o"), input, sagatest.Epoch)
		if err != nil {
			t.Fatalf("replying: %v", err)
		}
		if in.Seen["payment"] != before {
			t.Errorf("seen in the state before: got %v, want it left alone", in.Seen)
		}
		in = next
	}
	if in.Seen["payment"] != newer || len(in.Seen) != 1 {
		t.Errorf("seen: got %v, want %s from payment", in.Seen, newer)
	}
}
