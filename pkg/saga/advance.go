package saga

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
)

// Advance gives the state and the effects that follow from an input. It is a pure function: the same arguments give the
// same result. now is the database's time. An input that changes nothing, such as a repeated reply, gives the state as it
// was and no effects. The only error is [ErrTooLate].
func (d *Definition[T]) Advance(in Instance, data T, input Input, now time.Time) (Instance, Effects, error) {
	p := passage[T]{def: d, in: in.clone(), data: data, now: now}
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
	}
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
		case Idle, Done, Refused, Undone, UndoRefused:
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

// forward sends the first step that is not done, or completes the saga.
func (p *passage[T]) forward() {
	for i := range p.def.steps {
		switch p.in.Steps[i].Phase {
		case Done:
		case Idle:
			p.send(i, Sent, p.def.steps[i].action)
			return
		default:
			return
		}
	}
	p.in.Attention = ""
	p.status(Completed)
}

// turn turns the saga back.
func (p *passage[T]) turn(reason string) {
	if p.in.Status == Running {
		p.in.Reason = reason
		p.status(Compensating)
	}
	p.backward()
}

// backward sends the next undo, in reverse, or ends the saga. A step without an outcome is in doubt, and is undone like one
// that is done. Steps without an undo are covered by the undos of the steps before them.
func (p *passage[T]) backward() {
	for i := len(p.in.Steps) - 1; i >= 0; i-- {
		switch p.in.Steps[i].Phase {
		case Done, Sent, Waiting:
			if undo := p.def.steps[i].undo; undo != nil {
				p.send(i, Undoing, undo)
				return
			}
		case Undoing, UndoRefused:
			return
		case Idle, Refused, Undone:
		}
	}
	p.in.Attention = ""
	p.status(Compensated)
}

// reply deals with a reply, or with an answer that is as good as one.
func (p *passage[T]) reply(r Replied) {
	i, undo, ok := p.find(r.Step)
	if !ok {
		return
	}
	if participant := p.participant(i, undo); r.MessageID != uuid.Nil {
		p.in.Seen[participant] = r.MessageID
	}
	if undo {
		p.replyToUndo(i, r)
		return
	}
	switch phase := p.in.Steps[i].Phase; {
	case phase == Sent || phase == Waiting:
		p.replyToAction(i, r)
	case (phase == Refused || phase == Idle) && r.Outcome == OutcomeDone:
		// A success that nobody expected any more.
		p.lateSuccess(i)
	}
}

func (p *passage[T]) replyToAction(i int, r Replied) {
	switch r.Outcome {
	case OutcomeDone:
		p.in.Attention = ""
		p.enter(i, Done)
		if p.in.Status == Running {
			p.forward()
		}
	case OutcomeRefused:
		p.in.Attention = ""
		p.in.Steps[i].Reason = r.Reason
		p.enter(i, Refused)
		p.turn(r.Reason)
	case OutcomeWaiting:
		if p.in.Steps[i].Phase == Sent {
			p.enter(i, Waiting)
		}
		p.in.Steps[i].Due = p.now.Add(p.delay(i))
	}
}

func (p *passage[T]) replyToUndo(i int, r Replied) {
	switch phase := p.in.Steps[i].Phase; {
	case r.Outcome == OutcomeDone && (phase == Undoing || phase == UndoRefused):
		p.in.Attention = ""
		p.enter(i, Undone)
		p.backward()
	case r.Outcome == OutcomeRefused && phase == Undoing:
		p.in.Steps[i].Reason = r.Reason
		p.enter(i, UndoRefused)
		p.in.Attention = fmt.Sprintf("%s was refused: %s", r.Step, r.Reason)
	}
}

// lateSuccess undoes a step that was done after the saga had turned back without it.
func (p *passage[T]) lateSuccess(i int) {
	switch {
	case p.in.Status == Running || p.in.Status == Completed:
		return // the step comes when its turn comes
	case p.def.steps[i].undo == nil:
		p.in.Attention = fmt.Sprintf("%s succeeded after the saga had turned back", p.def.steps[i].name)
	default:
		p.enter(i, Done)
		p.status(Compensating)
		p.backward()
	}
}

// answer deals with what a participant said when it was asked.
func (p *passage[T]) answer(a Asked) {
	i, undo, ok := p.find(a.Step)
	if !ok {
		return
	}
	s := &p.in.Steps[i]
	if undo != (s.Phase == Undoing) || (!undo && s.Phase != Sent && s.Phase != Waiting) {
		return // no longer of interest
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
	s.Asked++
	// A participant that waits for the customer keeps the customer's deadline itself.
	spent := a.Answer.Finding != FoundWaiting && p.now.Sub(s.Since) >= p.def.steps[i].timing.Budget
	if spent && p.overBudget(i, undo) {
		return
	}
	switch {
	case a.Answer.Finding == FoundNothing && undo:
		p.resend(i, p.def.steps[i].undo)
	case a.Answer.Finding == FoundNothing:
		p.resend(i, p.def.steps[i].action)
	case a.Answer.Finding == FoundWaiting && s.Phase == Sent:
		p.enter(i, Waiting)
	}
	s.Due = p.now.Add(p.delay(i))
}

// overBudget decides about a step whose budget is used up. It reports whether the saga has turned back.
func (p *passage[T]) overBudget(i int, undo bool) bool {
	s := &p.in.Steps[i]
	if !undo && p.def.steps[i].kind == KindCompensatable {
		p.turn(ReasonTimedOut)
		return true
	}
	name := p.def.steps[i].name
	if undo {
		name = p.def.steps[i].undoName
	}
	if p.in.Attention == "" {
		p.in.Attention = fmt.Sprintf("%s has no outcome since %s", name, s.Since.UTC().Format(time.RFC3339))
		p.note(name, string(s.Phase), string(s.Phase), s.Attempts)
	}
	return false
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
	from := s.Phase
	s.Phase, s.Attempts, s.Asked, s.Since = phase, 1, 0, p.now
	s.Due = p.now.Add(p.delay(i))
	cmd := build(p.data)
	p.out.Send = append(p.out.Send, cmd)
	p.note(cmd.Step, string(from), string(phase), 1)
}

// resend sends the command of the current phase again.
func (p *passage[T]) resend(i int, build Builder[T]) {
	s := &p.in.Steps[i]
	s.Attempts++
	cmd := build(p.data)
	p.out.Send = append(p.out.Send, cmd)
	p.note(cmd.Step, string(s.Phase), string(s.Phase), s.Attempts)
}

// enter moves a step to a phase that sends nothing.
func (p *passage[T]) enter(i int, phase Phase) {
	s := &p.in.Steps[i]
	name := p.def.steps[i].name
	if phase == Undone || phase == UndoRefused {
		name = p.def.steps[i].undoName
	}
	p.note(name, string(s.Phase), string(phase), 0)
	s.Phase = phase
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

// find gives the step that an action or an undo belongs to.
func (p *passage[T]) find(name string) (i int, undo, ok bool) {
	for i, s := range p.def.steps {
		switch name {
		case s.name:
			return i, false, true
		case s.undoName:
			return i, true, true
		}
	}
	return 0, false, false
}

func (p *passage[T]) participant(i int, undo bool) string {
	if undo {
		return p.def.steps[i].undoParticipant
	}
	return p.def.steps[i].participant
}

// delay is how long to wait before a step is looked at again: the step's Ask, doubled with each time asked, at most AskMax,
// and moved by up to a fifth either way, so that sagas that failed together do not come back together. The move follows
// from the saga's id, because Advance knows no randomness.
func (p *passage[T]) delay(i int) time.Duration {
	t, s := p.def.steps[i].timing, p.in.Steps[i]
	d := t.AskMax
	if s.Asked < 20 {
		d = min(t.Ask<<s.Asked, t.AskMax)
	}
	h := fnv.New64a()
	h.Write(p.in.ID[:])
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(i)<<32|uint64(s.Asked)))
	part := float64(h.Sum64()%1000) / 1000                                         // 0 to 1
	return time.Duration(float64(d) * (0.8 + 0.4*part)).Truncate(time.Microsecond) // as the database keeps it
}
