package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protojson"

	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/internal/trail"
)

// maxID bounds what is looked for, in bytes; keys of clients have at most 255.
const maxID = 300

// found is what the page of a search shows.
type found struct {
	ID, Client string
	Matches    []*trailv1.Match
	Gaps       []*trailv1.Gap
}

// find looks for an id of any kind. One order is shown at once.
func (s *Server) find(w http.ResponseWriter, r *http.Request, v visit) {
	body := found{ID: strings.TrimSpace(r.URL.Query().Get("q")), Client: strings.TrimSpace(r.URL.Query().Get("client"))}
	if body.ID == "" || len(body.ID) > maxID || len(body.Client) > maxID {
		s.fail(w, r, v, http.StatusBadRequest, "Nothing to look for", "Give an order id, a client's key, a step key, a message id, or an id of the payment provider or the carrier.")
		return
	}
	match, gaps, err := s.cfg.Trail.Find(r.Context(), body.ID, body.Client)
	body.Gaps = gaps
	var several *trail.AmbiguousError
	switch {
	case err == nil:
		http.Redirect(w, r, "/orders/"+url.PathEscape(match.GetOrderId())+"?for="+url.QueryEscape(body.ID), http.StatusSeeOther)
		return
	case errors.As(err, &several):
		body.Matches = several.Matches
	case !errors.Is(err, trail.ErrNotFound):
		s.failed(w, r, v, "every service", err)
		return
	}
	p := s.page(v, "", "Find", body)
	p.Query = body.ID
	status := http.StatusOK
	if len(body.Matches) == 0 {
		status = http.StatusNotFound
	}
	s.pages.render(w, r, status, "found", p)
}

// tell reads the story of the order that an address names, or answers with an error.
func (s *Server) tell(ctx context.Context, w http.ResponseWriter, r *http.Request, v visit, q trail.Question) (*trailv1.Timeline, bool) {
	id := r.PathValue("id")
	if uuid.Validate(id) != nil || len(id) != 36 {
		s.fail(w, r, v, http.StatusNotFound, "Not found", "That is no order id. Look for other ids with the field above.")
		return nil, false
	}
	t, err := s.cfg.Trail.Timeline(ctx, id, q)
	switch {
	case errors.Is(err, trail.ErrNotFound):
		s.fail(w, r, v, http.StatusNotFound, "Not found", "No service knows this order.")
		return nil, false
	case err != nil:
		s.failed(w, r, v, "every service", err)
		return nil, false
	}
	return t, true
}

func (s *Server) showStory(w http.ResponseWriter, r *http.Request, v visit) {
	t, ok := s.tell(r.Context(), w, r, v, trail.Question{})
	if !ok {
		return
	}
	p := s.page(v, "", "Order "+short(t.GetOrderId()), newStory(t, r.URL.Query().Get("messages") != "", false))
	if p.Query = r.URL.Query().Get("for"); len(p.Query) > maxID {
		p.Query = ""
	}
	s.pages.render(w, r, http.StatusOK, "story", p)
}

// exportStory gives the story as JSON, in the form of throughline.trail.v1.Timeline.
func (s *Server) exportStory(w http.ResponseWriter, r *http.Request, v visit) {
	t, ok := s.tell(r.Context(), w, r, v, trail.Question{})
	if !ok {
		return
	}
	raw, err := protojson.MarshalOptions{Multiline: true, EmitUnpopulated: true}.Marshal(t)
	if err != nil {
		s.failed(w, r, v, "the console", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", `attachment; filename="order-`+t.GetOrderId()+`.json"`)
	_, _ = w.Write(append(raw, '\n')) // an error is a browser that went away
}

// confirmReveal asks why personal data is to be shown.
func (s *Server) confirmReveal(w http.ResponseWriter, r *http.Request, v visit) {
	if c := revealForm(r.PathValue("id")); uuid.Validate(r.PathValue("id")) == nil {
		c.Key = uuid.NewString()
		s.show(w, r, v, "confirm", "", c.What, c)
		return
	}
	s.notFound(w, r, v)
}

func revealForm(id string) confirmation {
	return confirmation{
		What: "Show personal data", Verb: "Show", Subject: "order " + id, Hint: "the customer asks where the parcel went", Back: "/orders/" + id,
		Effects: []string{"The address, the note and the payment method are shown once.", "It is kept with the order that you have looked, and why."},
	}
}

// reveal shows a story with personal data. It is the answer to a POST, so that no address leads there and no history keeps it.
func (s *Server) reveal(w http.ResponseWriter, r *http.Request, v visit) {
	if !s.readForm(w, r, v) {
		return
	}
	c := readConfirmation(r.PostForm)
	if c.Problem != "" {
		form := revealForm(r.PathValue("id"))
		form.Key, form.Reason, form.Problem = c.Key, c.Reason, c.Problem
		s.pages.render(w, r, http.StatusUnprocessableEntity, "confirm", s.page(v, "", form.What, form))
		return
	}
	t, ok := s.tell(r.Context(), w, r, v, trail.Question{Reveal: true, Actor: v.actor(), Reason: c.Reason})
	if !ok {
		return
	}
	s.pages.render(w, r, http.StatusOK, "story", s.page(v, "", "Order "+short(t.GetOrderId()), newStory(t, false, true)))
}
