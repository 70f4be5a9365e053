package payment

import (
	"crypto/subtle"
	"html/template"
	"net/http"
	"net/url"
)

// page is what stands for the issuer's own authentication page.
var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Payment simulator</title>
<body style="font-family:sans-serif;max-width:30em;margin:4em auto">
<h1>Your bank (simulated)</h1>
{{if .Open}}<p>Do you approve the payment of {{.Amount}} {{.Currency}} (minor units)?</p>
<form method="post"><button name="do" value="confirm">Approve</button> <button name="do" value="refuse">Refuse</button></form>
{{else}}<p>There is nothing to approve: the payment is {{.Status}}.</p>{{end}}
</body></html>
`))

// authenticating finds the intent of a customer's link; nil has been answered.
// The client secret is what the customer has to know.
func (s *Server) authenticating(w http.ResponseWriter, r *http.Request) *intent {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	in := s.store.intents[r.PathValue("id")]
	if in == nil || subtle.ConstantTimeCompare([]byte(in.ClientSecret), []byte(r.URL.Query().Get("client_secret"))) != 1 {
		http.Error(w, "no such payment", http.StatusNotFound)
		return nil
	}
	found := *in
	return &found
}

func (s *Server) showAuthentication(w http.ResponseWriter, r *http.Request) {
	in := s.authenticating(w, r)
	if in == nil {
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	err := page.Execute(w, map[string]any{
		"Open": in.Status == requiresAction, "Status": in.Status, "Amount": in.Amount, "Currency": in.Currency,
	})
	if err != nil {
		s.config.Logger.Debug("writing authentication page", "error", err)
	}
}

// authenticate takes the customer's decision and sends the browser on.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request) {
	in := s.authenticating(w, r)
	if in == nil {
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	do := r.PostFormValue("do")
	if do != "confirm" && do != "refuse" {
		http.Error(w, "do must be confirm or refuse", http.StatusBadRequest)
		return
	}
	err := s.change(func(t *tx) {
		if in := t.s.intents[in.ID]; in != nil {
			actAuthenticate(t, in, do == "confirm") // a second click changes nothing
		}
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	next := r.URL.String()
	if back, err := url.Parse(in.ReturnURL); in.ReturnURL != "" && err == nil {
		q := back.Query()
		q.Set("payment_intent", in.ID)
		q.Set("payment_intent_client_secret", in.ClientSecret)
		back.RawQuery = q.Encode()
		next = back.String()
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}
