package payment

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/throughline/throughline/services/simulator/control"
	sim "github.com/throughline/throughline/services/simulator/internal/control"
	"github.com/throughline/throughline/services/simulator/internal/httpserve"
	"github.com/throughline/throughline/services/simulator/internal/webhook"
)

// maxBody bounds a request's body; the largest real one is a few kB.
const maxBody = 1 << 20

// A Server is one payment simulator. Its methods are safe for concurrent use.
type Server struct {
	config  Config
	store   store
	engine  *sim.Engine
	hooks   *webhook.Sender
	handler http.Handler

	closeOnce sync.Once
	closeErr  error
}

// New opens the ledger and returns a Server that is ready to serve. Close must
// be called in the end. It fails with journal.ErrLocked, wrapped, if another process
// has the ledger open.
func New(c Config) (*Server, error) {
	c = c.withDefaults()
	s := &Server{config: c}
	s.store.clear()
	s.store.searchLag = c.SearchLag
	s.engine = sim.NewEngine(sim.EngineConfig{
		Operations: operationNames(), Calls: c.Calls, Now: c.Now, Record: s.record,
		ErrorBody: func(_ int, message string) []byte {
			return (&apiError{Type: typeAPI, Message: message}).body()
		},
	})
	if c.DataDir != "" {
		calls := func() []control.Call { list, _ := s.engine.Calls(""); return list }
		if err := s.store.open(filepath.Join(c.DataDir, "payment.jsonl"), s.engine.Restore, calls); err != nil {
			return nil, err
		}
	}
	s.hooks = webhook.NewSender(c.WebhookURL, c.WebhookSecret, signStripe, c.Logger)
	s.handler = s.routes()
	s.settleRefundsLater()
	return s, nil
}

// Handler serves the provider's interface and the control interface.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve serves on ln, which it closes, until ctx ends; it returns nil then.
// Calls that wait in a fault rule end without an answer. Close is still to be called.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	s.config.Logger.Info("payment simulator serving", "address", ln.Addr().String(), "config", s.config)
	return httpserve.Serve(ctx, ln, s.handler, s.engine.Stop, s.config.Logger)
}

// Close ends waiting calls and webhooks and writes the ledger out. It may be
// called twice.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.engine.Stop()
		s.hooks.Close()
		s.store.mu.Lock()
		s.store.closed = true
		s.store.mu.Unlock()
		if s.store.journal != nil {
			s.closeErr = s.store.journal.Close()
		}
	})
	return s.closeErr
}

// Run does it all: New, listening on c.Address, Serve, Close.
func Run(ctx context.Context, c Config) error {
	return httpserve.Run(ctx, c.withDefaults().Address, func() (httpserve.Server, error) { return New(c) })
}

// record makes the end of a call without effect durable.
func (s *Server) record(call control.Call) error {
	s.store.mu.Lock()
	n, err := s.store.append(line{Call: &call})
	s.store.mu.Unlock()
	return s.store.wait(n, err)
}

// routes builds the handler: every operation goes through the same steps.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, op := range operations() {
		mux.HandleFunc(op.pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, op) })
	}
	mux.HandleFunc("GET /authenticate/{id}", s.showAuthentication)
	mux.HandleFunc("POST /authenticate/{id}", s.authenticate)
	mux.Handle("/_control/", s.engine.Handler(s))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		e := invalidParam("", "", fmt.Sprintf("Unrecognized request URL (%s: %s).", r.Method, r.URL.Path))
		e.status = http.StatusNotFound
		sim.WriteAnswer(w, *refusal(e))
	})
	return mux
}

// serve takes one request of the provider's interface to its answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, op operation) {
	w.Header().Set("Request-Id", newID("req_"))
	if e := s.authorize(r); e != nil {
		sim.WriteAnswer(w, *refusal(e))
		return
	}
	f, err := readForm(w, r)
	if err != nil {
		sim.WriteAnswer(w, *refusal(invalidParam("", "", "The request body could not be read: "+err.Error())))
		return
	}
	id := r.PathValue("id")
	run := op.prepare(f, id)
	call := sim.Call{Operation: op.name, OrderID: s.orderOf(op, id, f), Baggage: len(r.Header.Values("Baggage")) > 0}
	write := r.Method == http.MethodPost
	if write {
		call.Key = r.Header.Get("Idempotency-Key")
	}
	if call.Key != "" {
		w.Header().Set("Idempotency-Key", call.Key)
	}
	if len(call.Key) > maxKey {
		f.fail(invalidParam("", "", fmt.Sprintf("Idempotency keys can be up to %d characters long.", maxKey)))
	}
	if f.err != nil {
		// Failed validation: never executed, so nothing is kept under the key.
		run = func(*tx) outcome { return outcome{err: f.err} }
	}
	var key *keyRecord
	if write && f.err == nil {
		call.Claim = func() (answer *sim.Answer) {
			key, answer = s.store.claim(call.Key, r.URL.Path, f.values, s.config.Now(), s.config.KeyLifetime)
			return answer
		}
		call.Abandon = func() { s.store.abandon(key) }
		call.Keep = func(settle sim.Settle) error {
			return s.apply(key, settle, func(*tx) outcome { return outcome{} })
		}
	}
	call.Apply = func(dedup bool, settle sim.Settle) error {
		if !dedup {
			return s.apply(nil, settle, run)
		}
		return s.apply(key, settle, run)
	}
	s.engine.Serve(w, call)
}

// apply runs one operation and makes it, its key and its call durable at once.
func (s *Server) apply(key *keyRecord, settle sim.Settle, run func(*tx) outcome) error {
	s.store.mu.Lock()
	t := &tx{s: &s.store, now: s.now()}
	keep, call := settle(run(t).answer())
	l := line{Intents: t.intents, Refunds: t.refunds, Call: &call}
	if key != nil && s.store.settle(key, keep) {
		l.Key = key
	}
	n, err := s.store.append(l)
	s.store.mu.Unlock()
	if err := s.store.wait(n, err); err != nil {
		return err
	}
	s.announce(t)
	return nil
}

// announce does what follows a durable change: webhooks, pending refunds.
func (s *Server) announce(t *tx) {
	for _, e := range t.events {
		s.send(e)
	}
	for _, id := range t.pending {
		s.settleRefundLater(id)
	}
}

// outcome is what an operation came to.
type outcome struct {
	body   any
	err    *apiError
	effect bool // a decline has none: it changed the intent, not what was asked for
}

func (o outcome) answer() (sim.Answer, bool) {
	if o.err != nil {
		return *refusal(o.err), false
	}
	return sim.Answer{Status: http.StatusOK, Body: encode(o.body)}, o.effect
}

func (s *Server) authorize(r *http.Request) *apiError {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !ok || key == "":
		return &apiError{status: http.StatusUnauthorized, Type: typeInvalidRequest,
			Message: "You did not provide an API key. You need to provide your API key in the Authorization header, using Bearer auth."}
	case s.config.APIKey != "" && key != s.config.APIKey:
		return &apiError{status: http.StatusUnauthorized, Type: typeInvalidRequest, Message: "Invalid API Key provided."}
	}
	return nil
}

// readForm reads the parameters, of the body for POST, of the query otherwise.
func readForm(w http.ResponseWriter, r *http.Request) (*form, error) {
	values := r.URL.Query()
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			return nil, err
		}
		if values, err = url.ParseQuery(string(body)); err != nil {
			return nil, err
		}
	}
	return &form{values: values, baseURL: "http://" + r.Host}, nil
}

// orderOf finds the order that a call is about: from its metadata, or from
// the object that it names.
func (s *Server) orderOf(op operation, id string, f *form) string {
	switch op.order {
	case orderInMetadata:
		return f.str("metadata[order_id]")
	case orderInQuery:
		q, _ := parseQuery(f.str("query"))
		return q["metadata['order_id']"]
	case orderOfNone:
		return ""
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if in := s.store.named(op.order, id, f); in != nil {
		return in.OrderID
	}
	return ""
}

// named finds the intent that a call names.
func (s *store) named(by orderSource, id string, f *form) *intent {
	switch by {
	case orderOfIntent:
		return s.intents[id]
	case orderOfRefund:
		if r := s.refunds[id]; r != nil {
			return s.intents[r.IntentID]
		}
		return nil
	}
	if in := s.intents[f.str("payment_intent")]; in != nil {
		return in
	}
	return s.byCharge[f.str("charge")]
}

// settleRefundsLater takes up the refunds that were pending at the last stop.
func (s *Server) settleRefundsLater() {
	s.store.mu.Lock() // the first timer may end before the last is set
	defer s.store.mu.Unlock()
	for _, r := range s.store.refundOrder {
		if r.Ends != "" {
			s.settleRefundLater(r.ID)
		}
	}
}

// settleRefundLater gives a refund its last status after the configured time.
func (s *Server) settleRefundLater(id string) {
	time.AfterFunc(s.config.RefundDelay, func() {
		if err := s.change(func(t *tx) { settleRefund(t, id) }); err != nil {
			s.config.Logger.Error("settling refund", "refund_id", id, "error", err)
		}
	})
}

// now is what is written into objects: UTC, and without the monotonic reading
// that a restart would lose.
func (s *Server) now() time.Time { return s.config.Now().UTC().Round(0) }

// change makes a change that no call asked for durable. After Close it does nothing.
func (s *Server) change(do func(*tx)) error {
	s.store.mu.Lock()
	if s.store.closed {
		s.store.mu.Unlock()
		return nil
	}
	t := &tx{s: &s.store, now: s.now()}
	do(t)
	n, err := s.store.append(line{Intents: t.intents, Refunds: t.refunds})
	s.store.mu.Unlock()
	if err := s.store.wait(n, err); err != nil {
		return err
	}
	s.announce(t)
	return nil
}
