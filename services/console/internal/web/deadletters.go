package web

import (
	"context"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"sync"

	"github.com/google/uuid"

	deadletterv1 "github.com/throughline/throughline/proto/gen/throughline/deadletter/v1"
	"github.com/throughline/throughline/services/console/internal/operator"
)

// letterList is what the page of all dead letters shows.
type letterList struct {
	Services []serviceLetters
	// Order is the order that the list is about; empty for all. All shows settled ones, too.
	Order string
	All   bool
	Empty bool
}

// serviceLetters are the dead letters of one service, or why they are not known.
type serviceLetters struct {
	Service string
	Letters []*deadletterv1.DeadLetter
	Next    string
	Problem string
}

// listLetters asks all services at once. One that does not answer costs only its own part.
func (s *Server) listLetters(w http.ResponseWriter, r *http.Request, v visit) {
	q := r.URL.Query()
	body := letterList{Order: q.Get("order"), All: q.Get("all") != "", Empty: true, Services: make([]serviceLetters, len(operator.Names()))}
	var asked sync.WaitGroup
	for i, name := range operator.Names() {
		asked.Go(func() {
			part := serviceLetters{Service: name}
			resp, err := s.cfg.Services.DeadLetters[name].ListDeadLetters(r.Context(), &deadletterv1.ListDeadLettersRequest{
				OrderId: body.Order, IncludeSettled: body.All, PageToken: q.Get(name),
			})
			if err != nil {
				_, _, part.Problem = explain(name, err)
			}
			part.Letters, part.Next = resp.GetDeadLetters(), resp.GetNextPageToken()
			body.Services[i] = part
		})
	}
	asked.Wait()
	for _, part := range body.Services {
		body.Empty = body.Empty && len(part.Letters) == 0 && part.Problem == ""
	}
	s.show(w, r, v, "deadletters", "dead-letters", "Dead letters", body)
}

// letter is what the page of one dead letter shows.
type letter struct {
	*deadletterv1.GetDeadLetterResponse
	Service string
	Trace   string
	Headers []header
	Open    bool
}

type header struct{ Name, Value string }

// letterNamed reads the dead letter that an address names, or answers with an error.
func (s *Server) letterNamed(w http.ResponseWriter, r *http.Request, v visit) (letter, bool) {
	service := r.PathValue("service")
	letters, ok := s.cfg.Services.DeadLetters[service]
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if !ok || err != nil {
		s.notFound(w, r, v)
		return letter{}, false
	}
	resp, err := letters.GetDeadLetter(r.Context(), &deadletterv1.GetDeadLetterRequest{Id: id})
	if err != nil {
		s.failed(w, r, v, service, err)
		return letter{}, false
	}
	l := letter{GetDeadLetterResponse: resp, Service: service, Trace: traceOf(resp.GetDeadLetter().GetTraceparent())}
	l.Open = resp.GetDeadLetter().GetSettledAt() == nil
	for name, value := range resp.GetHeaders() {
		l.Headers = append(l.Headers, header{name, value})
	}
	sort.Slice(l.Headers, func(i, j int) bool { return l.Headers[i].Name < l.Headers[j].Name })
	return l, true
}

func (s *Server) showLetter(w http.ResponseWriter, r *http.Request, v visit) {
	if l, ok := s.letterNamed(w, r, v); ok {
		s.show(w, r, v, "deadletter", "dead-letters", "Dead letter "+l.Service+"/"+r.PathValue("id"), l)
	}
}

// letterAction is what can be done about a dead letter.
type letterAction struct {
	name, hint string
	danger     bool
	effects    []string
	do         func(ctx context.Context, letters deadletterv1.DeadLetterServiceClient, id int64, dry bool, actor, reason string) (*deadletterv1.Report, error)
}

func letterActions() map[string]letterAction {
	return map[string]letterAction{
		"replay": {
			name: "Replay", hint: "the release with the fix is out",
			effects: []string{
				"The service runs its handler with the stored message. What was dealt with already is not dealt with again.",
				"Later events of the order that wait behind it follow by themselves.",
			},
			do: func(ctx context.Context, letters deadletterv1.DeadLetterServiceClient, id int64, dry bool, actor, reason string) (*deadletterv1.Report, error) {
				resp, err := letters.ReplayDeadLetter(ctx, &deadletterv1.ReplayDeadLetterRequest{Id: id, DryRun: dry, Actor: actor, Reason: reason})
				return resp.GetReport(), err
			},
		},
		"discard": {
			name: "Discard", hint: "sent by a test by mistake", danger: true,
			effects: []string{
				"The message is never dealt with. It stays on record as discarded.",
				"Later events of the order that wait behind it follow by themselves.",
			},
			do: func(ctx context.Context, letters deadletterv1.DeadLetterServiceClient, id int64, dry bool, actor, reason string) (*deadletterv1.Report, error) {
				resp, err := letters.DiscardDeadLetter(ctx, &deadletterv1.DiscardDeadLetterRequest{Id: id, DryRun: dry, Actor: actor, Reason: reason})
				return resp.GetReport(), err
			},
		},
	}
}

// confirmLetter says what an action would do, by a dry run, and asks for the reason.
func (s *Server) confirmLetter(w http.ResponseWriter, r *http.Request, v visit) {
	l, ok := s.letterNamed(w, r, v)
	if !ok {
		return
	}
	action, ok := letterActions()[r.PathValue("action")]
	if !ok {
		s.notFound(w, r, v)
		return
	}
	c, ok := s.fillLetter(w, r, v, &l, action, confirmation{Key: uuid.NewString()})
	if ok {
		s.show(w, r, v, "confirm", "dead-letters", c.What, c)
	}
}

// fillLetter adds to a confirmation what a dry run says.
func (s *Server) fillLetter(w http.ResponseWriter, r *http.Request, v visit, l *letter, a letterAction, c confirmation) (confirmation, bool) {
	id := l.GetDeadLetter().GetId()
	report, err := a.do(r.Context(), s.cfg.Services.DeadLetters[l.Service], id, true, v.actor(), "")
	if err != nil {
		s.failed(w, r, v, l.Service, err)
		return c, false
	}
	back := letterPath(l.Service, id)
	if report.GetOutcome() != "would" {
		s.fail(w, r, v, http.StatusConflict, "Nothing to do", words(report.GetOutcome())+": "+report.GetDetail())
		return c, false
	}
	c.What, c.Verb, c.Danger, c.Hint, c.Back = a.name+" a dead letter", a.name, a.danger, a.hint, back
	c.Subject = l.GetDeadLetter().GetSubject() + " of order " + l.GetDeadLetter().GetOrderId()
	c.Effects = append([]string{"Dry run: " + report.GetDetail() + "."}, a.effects...)
	if n := report.GetFollowers(); n > 0 {
		c.Effects = append(c.Effects, strconv.Itoa(int(n))+" later events of the order wait behind it.")
	}
	return c, true
}

func (s *Server) actOnLetter(w http.ResponseWriter, r *http.Request, v visit) {
	if !s.readForm(w, r, v) {
		return
	}
	action, known := letterActions()[r.PathValue("action")]
	service := r.PathValue("service")
	letters, served := s.cfg.Services.DeadLetters[service]
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if !known || !served || err != nil {
		s.notFound(w, r, v)
		return
	}
	c := readConfirmation(r.PostForm)
	if c.Problem != "" {
		l, ok := s.letterNamed(w, r, v)
		if !ok {
			return
		}
		if c, ok = s.fillLetter(w, r, v, &l, action, c); ok {
			s.pages.render(w, r, http.StatusUnprocessableEntity, "confirm", s.page(v, "dead-letters", c.What, c))
		}
		return
	}
	_, err = s.actions.once(r.Context(), c.Key, v, func() (outcome, error) {
		report, err := action.do(r.Context(), letters, id, false, v.actor(), c.Reason)
		if err != nil {
			return outcome{}, err
		}
		return letterOutcome(action.name, report), nil
	})
	if err != nil {
		s.failed(w, r, v, service, err)
		return
	}
	http.Redirect(w, r, letterPath(service, id)+"?did="+url.QueryEscape(c.Key), http.StatusSeeOther)
}

func letterOutcome(name string, report *deadletterv1.Report) outcome {
	o := outcome{Tone: "good", Title: name + ": " + words(report.GetOutcome()), Detail: report.GetDetail()}
	switch report.GetOutcome() {
	case "failed", "refused":
		o.Tone = "bad"
	}
	return o
}
