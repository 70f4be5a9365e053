package web

import (
	"net/http"

	"github.com/throughline/throughline/services/console/internal/live"
	"github.com/throughline/throughline/services/console/internal/operator"
)

// serviceState is what a service said last.
type serviceState struct {
	Name string
	live.Examined
	Problem string
}

// showServices shows what the services said last: outboxes, consumers, and rules between settings that are broken.
func (s *Server) showServices(w http.ResponseWriter, r *http.Request, v visit) {
	var newest live.Vitals
	if kept := s.cfg.Sampler.Vitals(); len(kept) > 0 {
		newest = kept[len(kept)-1]
	}
	var body []serviceState
	for _, name := range operator.Names() {
		state := serviceState{Name: name, Examined: newest.Services[name]}
		if state.Err != nil {
			_, _, state.Problem = explain(name, state.Err)
		} else if state.ExamineResponse == nil {
			state.Problem = "It has not been asked yet."
		}
		body = append(body, state)
	}
	s.show(w, r, v, "services", "services", "Services", body)
}
