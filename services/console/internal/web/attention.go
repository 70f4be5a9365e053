package web

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/google/uuid"

	attentionv1 "github.com/throughline/throughline/proto/gen/throughline/attention/v1"
	"github.com/throughline/throughline/services/internal/topology"
)

// decision is a way to bring an order that waits for a person to an end.
type decision struct {
	// Path is its name in addresses.
	Path       string
	Name       string
	Resolution attentionv1.Resolution
	Effects    []string
	Hint       string
	Danger     bool
	// phases are those of the step in which it can be made.
	phases []string
}

// decisions are all of them, the most harmless first. Which can be made is decided by the order service; what it would refuse is not offered.
func decisions() []decision {
	return []decision{
		{
			Path: "retry", Name: "Try again", Resolution: attentionv1.Resolution_RESOLUTION_RETRY,
			Effects: []string{
				"The step is attempted once more, under the same key: what was done already is found, and not done twice.",
				"If it has no outcome again, or is refused again, the order comes back here.",
			},
			Hint: "the provider's outage is over", phases: []string{"sent", "waiting", "undo_refused"},
		},
		{
			Path: "undo", Name: "Undo the order", Resolution: attentionv1.Resolution_RESOLUTION_UNDO_OTHER_WAY,
			Effects: []string{
				"Nobody waits for the step any longer. The undos of the steps before it run, and cover what it may have done.",
				"The order ends as not sold.",
			},
			Hint: "the customer wants the money back", Danger: true, phases: []string{"sent", "waiting"},
		},
		{
			Path: "undo", Name: "Undone by other means", Resolution: attentionv1.Resolution_RESOLUTION_UNDO_OTHER_WAY,
			Effects: []string{
				"You say that a person has undone this step by other means, such as a bank transfer. Nothing is called for it.",
				"The undos of the steps before it follow.",
			},
			Hint: "refunded by bank transfer 4711", Danger: true, phases: []string{"undoing", "undo_refused"},
		},
		{
			Path: "mark-done", Name: "Mark as done", Resolution: attentionv1.Resolution_RESOLUTION_MARK_DONE,
			Effects: []string{
				"You say that you have made sure that this is done. Nothing is called for it, and nobody checks it again.",
				"The order goes on from there.",
			},
			Hint: "seen as captured at the provider, pi_123", Danger: true, phases: []string{"sent", "waiting", "undoing", "undo_refused", "done"},
		},
	}
}

// deskCase is what the page of one case shows.
type deskCase struct {
	*attentionv1.GetAttentionResponse
	Decisions []decision
	// Phase is that of the step which needs a person.
	Phase string
}

// offered are the decisions that can be made about a case.
func offered(resp *attentionv1.GetAttentionResponse) (list []decision, phase string) {
	if resp.GetCase().GetReason() == "" {
		return nil, ""
	}
	for _, step := range resp.GetSteps() {
		if step.GetAttention() == "" {
			continue
		}
		for _, d := range decisions() {
			if slices.Contains(d.phases, step.GetPhase()) {
				list = append(list, d)
			}
		}
		return list, step.GetPhase()
	}
	return nil, ""
}

func (s *Server) listAttention(w http.ResponseWriter, r *http.Request, v visit) {
	resp, err := s.cfg.Services.Attention.ListAttention(r.Context(), &attentionv1.ListAttentionRequest{PageToken: r.URL.Query().Get("page")})
	if err != nil {
		s.failed(w, r, v, topology.Order, err)
		return
	}
	s.show(w, r, v, "attention", "attention", "Attention desk", resp)
}

func (s *Server) showCase(w http.ResponseWriter, r *http.Request, v visit) {
	resp, err := s.cfg.Services.Attention.GetAttention(r.Context(), &attentionv1.GetAttentionRequest{OrderId: r.PathValue("id")})
	if err != nil {
		s.failed(w, r, v, topology.Order, err)
		return
	}
	body := deskCase{GetAttentionResponse: resp}
	body.Decisions, body.Phase = offered(resp)
	s.show(w, r, v, "case", "attention", "Order "+short(resp.GetCase().GetOrderId()), body)
}

// findDecision gives the decision that an address names, if it can be made now; or answers with an error.
func (s *Server) findDecision(w http.ResponseWriter, r *http.Request, v visit) (decision, *attentionv1.Case, bool) {
	resp, err := s.cfg.Services.Attention.GetAttention(r.Context(), &attentionv1.GetAttentionRequest{OrderId: r.PathValue("id")})
	if err != nil {
		s.failed(w, r, v, topology.Order, err)
		return decision{}, nil, false
	}
	list, _ := offered(resp)
	for _, d := range list {
		if d.Path == r.PathValue("decision") {
			return d, resp.GetCase(), true
		}
	}
	if !slices.ContainsFunc(decisions(), func(d decision) bool { return d.Path == r.PathValue("decision") }) {
		s.notFound(w, r, v)
		return decision{}, nil, false
	}
	s.fail(w, r, v, http.StatusConflict, "Nothing to decide", "The order does not wait for this decision, or not any more. Nothing was done.")
	return decision{}, nil, false
}

// fill adds to a confirmation what the decision means.
func (d decision) fill(c *confirmation, about *attentionv1.Case) {
	c.What, c.Verb, c.Danger, c.Effects, c.Hint = d.Name, d.Name, d.Danger, d.Effects, d.Hint
	c.Subject = about.GetStep() + " of order " + about.GetOrderId()
	c.Back = "/attention/" + about.GetOrderId()
}

func (s *Server) confirmDecision(w http.ResponseWriter, r *http.Request, v visit) {
	d, about, ok := s.findDecision(w, r, v)
	if !ok {
		return
	}
	c := confirmation{Key: uuid.NewString(), Step: about.GetStep()}
	d.fill(&c, about)
	s.show(w, r, v, "confirm", "attention", c.What, c)
}

func (s *Server) decide(w http.ResponseWriter, r *http.Request, v visit) {
	if !s.readForm(w, r, v) {
		return
	}
	c := readConfirmation(r.PostForm)
	id := r.PathValue("id")
	if c.Problem != "" {
		d, about, ok := s.findDecision(w, r, v)
		if !ok {
			return
		}
		d.fill(&c, about)
		s.pages.render(w, r, http.StatusUnprocessableEntity, "confirm", s.page(v, "attention", c.What, c))
		return
	}
	var resolution attentionv1.Resolution
	for _, d := range decisions() {
		if d.Path == r.PathValue("decision") {
			resolution = d.Resolution
		}
	}
	if resolution == attentionv1.Resolution_RESOLUTION_UNSPECIFIED {
		s.notFound(w, r, v)
		return
	}
	// Whether it can be made is asked of the order service alone, after it has looked for an earlier decision with the key.
	_, err := s.actions.once(r.Context(), c.Key, v, func() (outcome, error) {
		resp, err := s.cfg.Services.Attention.Resolve(r.Context(), &attentionv1.ResolveRequest{
			RequestKey: c.Key, OrderId: id, Step: c.Step, Resolution: resolution, Actor: v.actor(), Reason: c.Reason,
		})
		if err != nil {
			return outcome{}, err
		}
		return outcome{"good", "Decided", resp.GetAction().GetStep() + ": " + words(resolutionWord(resp.GetAction().GetResolution())) +
			". The order is " + words(resp.GetStatus()) + " now."}, nil
	})
	if err != nil {
		s.failed(w, r, v, topology.Order, err)
		return
	}
	http.Redirect(w, r, "/attention/"+url.PathEscape(id)+"?did="+url.QueryEscape(c.Key), http.StatusSeeOther)
}

func resolutionWord(r attentionv1.Resolution) string {
	switch r {
	case attentionv1.Resolution_RESOLUTION_RETRY:
		return "try_again"
	case attentionv1.Resolution_RESOLUTION_UNDO_OTHER_WAY:
		return "undo_by_other_means"
	case attentionv1.Resolution_RESOLUTION_MARK_DONE:
		return "mark_as_done"
	default:
		return r.String()
	}
}

// failed answers with the page of a service's error.
func (s *Server) failed(w http.ResponseWriter, r *http.Request, v visit, service string, err error) {
	code, title, detail := explain(service, err)
	if code >= http.StatusInternalServerError {
		s.cfg.Logger.WarnContext(r.Context(), "asking a service failed", "service", service, "error", err)
	}
	s.fail(w, r, v, code, title, detail)
}
