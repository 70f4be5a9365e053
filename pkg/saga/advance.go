package saga

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
)

// Advance gives the state and the effects that follow from an input. It is a pure function: the same arguments give the
// same result. now is the database's time. An input that changes nothing, such as a repeated reply, gives the state as it
// was and no effects. The only errors are [ErrTooLate] and [ErrNothingToResolve].
func (d *Definition[T]) Advance(in Instance, data T, input Input, now time.Time) (Instance, Effects, error) {
	p := passage[T]{def: d, in: in.clone(), data: data, now: now}
	if _, first := input.(Started); first != (in.Status == "") {
		return p.in, p.out, nil // begun already, or not yet
	}
	var err error
	switch input := input.(type) {
	case Started:
		p.cause = "started"
		p.status(Running)
		p.forward()
	case Replied:
		p.cause, p.causeID = "reply", input.MessageID
		p.reply(input)
	case Asked:
		p.cause = "answer"
		p.answer(input)
	case CancelRequested:
		p.cause = "cancel"
		err = p.cancel()
	case Resolved:
		p.cause = "operator"
		err = p.resolve(input)
	}
	p.attention()
	return p.in, p.out, err
}

// Overdue lists what must be asked at a time.
func (d *Definition[T]) Overdue(in Instance, now time.Time) []Question {
	var questions []Question
	for i, s := range in.Steps {
		if s.Due.After(now) {
			continue
		}
		switch s.Phase {
		case Sent, Waiting:
			questions = append(questions, Question{d.steps[i].participant, d.steps[i].name})
		case Undoing:
			questions = append(questions, Question{d.steps[i].undoParticipant, d.steps[i].undoName})
		case Idle, Done, Refused, GivenUp, Undone, UndoRefused:
		}
	}
	return questions
}

// passage is one call of Advance.
type passage[T proto.Message] struct {
	def     *Definition[T]
	in      Instance
	data    T
	now     time.Time
	cause   string
	causeID uuid.UUID
	out     Effects
}

// forward sends the steps of the first group that is not done, or completes the saga.
func (p *passage[T]) forward() {
	for begin := 0; begin < len(p.def.steps); begin = p.def.steps[begin].end {
		open := false
		for i := begin; i < p.def.steps[begin].end; i++ {
			if p.in.Steps[i].Phase == Idle {
				p.send(i, Sent, p.def.steps[i].action)
			}
			open = open || p.in.Steps[i].Phase != Done
		}
		if open {
			return
		}
	}
	p.status(Completed)
}

// refused turns the saga back for a participant's reason. Our own reasons are not his to give.
func (p *passage[T]) refused(reason string) {
	switch reason {
	case "", ReasonCancelled, ReasonTimedOut, ReasonGivenUp:
		reason = ReasonRefused
	}
	p.turn(reason)
}

// turn turns the saga back.
func (p *passage[T]) turn(reason string) {
	if p.in.Status == Running {
		p.in.Reason = reason
		p.status(Compensating)
	}
	p.backward()
}

// backward sends the next undos, in reverse, or ends the saga. A step without an outcome is in doubt, and is undone like one
// that is done. Steps without an undo are covered by the undos of the steps before them, unless they were done too late
// for that: then a person must act, and the saga does not end.
func (p *passage[T]) backward() {
	uncovered := false
	for end := len(p.def.steps); end > 0; end = p.def.steps[end-1].begin {
		open := false
		for i := end - 1; i >= p.def.steps[end-1].begin; i-- {
			s, undo := &p.in.Steps[i], p.def.steps[i].undo
			switch s.Phase {
			case Done, Sent, Waiting:
				switch {
				case undo != nil:
					p.send(i, Undoing, undo)
					open = true
				case s.Phase == Done:
					uncovered = uncovered || s.Attention != ""
				default:
					p.enter(i, GivenUp) // one of a group, beside the step that was refused
				}
			case Undoing, UndoRefused:
				open = true
			case Idle, Refused, GivenUp, Undone:
			}
		}
		if open {
			return
		}
	}
	if !uncovered {
		p.status(Compensated)
	}
}

// reply deals with a reply, or with an answer that is as good as one.
func (p *passage[T]) reply(r Replied) {
	i, undo, ok := p.def.find(r.Step)
	if !ok {
		return
	}
	// Replies may overtake each other; the ids grow with time.
	if name := p.participant(i, undo); bytes.Compare(r.MessageID[:], idOf(p.in.Seen, name)) > 0 {
		p.in.Seen[name] = r.MessageID
	}
	if undo {
		p.replyToUndo(i, r)
		return
	}
	switch phase := p.in.Steps[i].Phase; {
	case phase == Sent || phase == Waiting:
		p.replyToAction(i, r)
	case (phase == Refused || phase == Idle) && r.Outcome == OutcomeDone:
		p.lateSuccess(i)
	}
}

func idOf(seen map[string]uuid.UUID, name string) []byte {
	id := seen[name]
	return id[:]
}

func (p *passage[T]) replyToAction(i int, r Replied) {
	switch r.Outcome {
	case OutcomeDone:
		p.enter(i, Done)
		if p.in.Status == Running {
			p.forward()
		}
	case OutcomeRefused:
		p.enter(i, Refused)
		p.in.Steps[i].Reason = r.Reason
		p.refused(r.Reason)
	case OutcomeWaiting:
		p.waits(i)
		if len(r.Detail) > 0 {
			p.in.Steps[i].Detail = r.Detail
		}
	}
}

// waits notes that the participant waits for the customer. It keeps the customer's deadline itself, so the budget counts
// anew from each time it says so.
func (p *passage[T]) waits(i int) {
	s := &p.in.Steps[i]
	if s.Phase == Sent {
		p.note(s.Name, string(Sent), string(Waiting), 0)
		s.Phase, s.Asked = Waiting, 0
	}
	s.Since, s.Attention = p.now, ""
	p.look(i)
}

func (p *passage[T]) replyToUndo(i int, r Replied) {
	switch phase := p.in.Steps[i].Phase; {
	case r.Outcome == OutcomeDone && (phase == Undoing || phase == UndoRefused):
		p.enter(i, Undone)
		p.backward()
	case r.Outcome == OutcomeRefused && phase == Undoing:
		p.enter(i, UndoRefused)
		p.in.Steps[i].Reason = r.Reason
		p.in.Steps[i].Attention = fmt.Sprintf("%s was refused: %s", r.Step, r.Reason)
	}
}

// lateSuccess deals with a success that nobody expected any more: the step had been refused, or was never sent as far as
// the state knows.
func (p *passage[T]) lateSuccess(i int) {
	if p.in.Status == Running || p.in.Status == Completed {
		return // the step comes when its turn comes
	}
	p.enter(i, Done)
	if p.def.steps[i].undo == nil {
		// The undos that would have covered it may have run already.
		p.in.Steps[i].Attention = fmt.Sprintf("%s succeeded after the saga had turned back", p.in.Steps[i].Name)
	}
	p.status(Compensating)
	p.backward()
}

// answer deals with what a participant said when it was asked.
func (p *passage[T]) answer(a Asked) {
	i, undo, ok := p.def.find(a.Step)
	if !ok {
		return
	}
	switch a.Answer.Finding {
	case FoundDone:
		p.reply(Replied{Step: a.Step, Outcome: OutcomeDone})
		return
	case FoundRefused:
		p.reply(Replied{Step: a.Step, Outcome: OutcomeRefused, Reason: a.Answer.Reason})
		return
	case FoundNothing, FoundRunning, FoundWaiting, Silent:
	}
	s := &p.in.Steps[i]
	if undo != (s.Phase == Undoing) || (!undo && s.Phase != Sent && s.Phase != Waiting) {
		return // no longer of interest
	}
	s.Asked++
	if a.Answer.Finding == FoundWaiting && !undo {
		p.waits(i)
		return
	}
	if p.now.Sub(s.Since) >= p.def.steps[i].timing.Budget {
		if !undo && p.def.steps[i].kind == KindCompensatable {
			p.turn(ReasonTimedOut)
			return
		}
		if s.Attention == "" {
			s.Attention = fmt.Sprintf("%s has no outcome since %s", a.Step, s.Since.UTC().Format(time.RFC3339))
		}
	}
	if a.Answer.Finding == FoundNothing {
		p.resend(i)
	}
	p.look(i)
}

// cancel turns the saga back at the client's request. It is too late once the pivot's command was sent.
func (p *passage[T]) cancel() error {
	if p.in.Status == Compensating || p.in.Status == Compensated {
		return nil // it is being undone already
	}
	if p.in.Status == Completed {
		return ErrTooLate
	}
	for i, s := range p.def.steps {
		if s.kind == KindPivot && p.in.Steps[i].Phase != Idle {
			return ErrTooLate
		}
	}
	p.turn(ReasonCancelled)
	return nil
}

// send sends the first command of a phase.
func (p *passage[T]) send(i int, phase Phase, build Builder[T]) {
	s := &p.in.Steps[i]
	cmd := build(p.data)
	p.out.Send = append(p.out.Send, cmd)
	p.note(cmd.Step, string(s.Phase), string(phase), 1)
	*s = StepState{Name: s.Name, Phase: phase, Attempts: 1, Since: p.now, Reason: s.Reason}
	p.look(i)
}

// resend sends the command of the current phase again. A participant that waited for the customer and has no record any
// more does not wait.
func (p *passage[T]) resend(i int) {
	s := &p.in.Steps[i]
	from, build := s.Phase, p.def.steps[i].action
	switch s.Phase {
	case Undoing:
		build = p.def.steps[i].undo
	case Waiting:
		s.Phase, s.Detail = Sent, nil
	}
	s.Attempts++
	cmd := build(p.data)
	p.out.Send = append(p.out.Send, cmd)
	p.note(cmd.Step, string(from), string(s.Phase), s.Attempts)
}

// enter moves a step to a phase in which nothing is awaited.
func (p *passage[T]) enter(i int, phase Phase) {
	s := &p.in.Steps[i]
	name := s.Name
	if phase == Undone || phase == UndoRefused {
		name = p.def.steps[i].undoName
	}
	p.note(name, string(s.Phase), string(phase), 0)
	*s = StepState{Name: s.Name, Phase: phase, Since: p.now, Reason: s.Reason}
}

// attention gathers why a person is needed from the steps, and notes when that begins and ends.
func (p *passage[T]) attention() {
	why := ""
	for _, s := range p.in.Steps {
		if why == "" {
			why = s.Attention
		}
	}
	switch before := p.in.Attention; {
	case before == "" && why != "":
		p.note("", string(p.in.Status), NeedsAttention, 0)
	case before != "" && why == "":
		p.note("", NeedsAttention, string(p.in.Status), 0)
	}
	p.in.Attention = why
}

// status moves the saga as a whole.
func (p *passage[T]) status(to Status) {
	if p.in.Status == to {
		return
	}
	p.note("", string(p.in.Status), string(to), 0)
	p.in.Status = to
}

func (p *passage[T]) note(step, from, to string, attempt int) {
	p.out.Transitions = append(p.out.Transitions,
		Transition{Step: step, From: from, To: to, Cause: p.cause, CauseID: p.causeID, Attempt: attempt})
}

func (p *passage[T]) participant(i int, undo bool) string {
	if undo {
		return p.def.steps[i].undoParticipant
	}
	return p.def.steps[i].participant
}

// look sets when to look at a step again: after a delay, but no later than when its budget ends.
func (p *passage[T]) look(i int) {
	s := &p.in.Steps[i]
	s.Due = p.now.Add(p.delay(i))
	if end := s.Since.Add(p.def.steps[i].timing.Budget); end.After(p.now) && end.Before(s.Due) {
		s.Due = end
	}
}

// delay is how long to wait before a step is looked at again: the step's Ask, doubled with each time asked, at most AskMax,
// and moved by up to a fifth either way, so that sagas that failed together do not come back together. The move follows
// from the saga's id, because Advance knows no randomness. It is the same for all steps of a saga: so the timer that is set
// for one step is not too late for the next, which then needs none of its own.
func (p *passage[T]) delay(i int) time.Duration {
	t, s := p.def.steps[i].timing, p.in.Steps[i]
	d := min(t.Ask, t.AskMax)
	for range s.Asked {
		if d > t.AskMax/2 {
			d = t.AskMax
			break
		}
		d *= 2
	}
	return moved(p.in.ID, s.Asked, d)
}

// moved moves a delay by up to a fifth either way.
func moved(id uuid.UUID, n int, d time.Duration) time.Duration {
	h := fnv.New64a()
	h.Write(id[:])
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))                      //nolint:gosec // a count, and any bits do
	part := float64(h.Sum64()%1000) / 1000                                         // 0 to 1
	return time.Duration(float64(d) * (0.8 + 0.4*part)).Truncate(time.Microsecond) // as the database keeps it
}
