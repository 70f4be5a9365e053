package carrier

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/throughline/throughline/services/simulator/control"
	sim "github.com/throughline/throughline/services/simulator/internal/control"
	"github.com/throughline/throughline/services/simulator/internal/httpserve"
	"github.com/throughline/throughline/services/simulator/internal/webhook"
)

// maxBody bounds a request's body; the largest real one is a few kB.
const maxBody = 1 << 20

// A Server is one carrier simulator. Its methods are safe for concurrent use.
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
	s.engine = sim.NewEngine(sim.EngineConfig{
		Operations: operationNames(), Calls: c.Calls, Now: c.Now, Record: s.record,
		ErrorBody: func(_ int, message string) []byte {
			return (&apiError{code: CodeInternal, message: message}).body()
		},
	})
	if c.DataDir != "" {
		calls := func() []control.Call { list, _ := s.engine.Calls(""); return list }
		if err := s.store.open(filepath.Join(c.DataDir, "carrier.jsonl"), s.engine.Restore, calls); err != nil {
			return nil, err
		}
	}
	s.hooks = webhook.NewSender(c.WebhookURL, c.WebhookSecret, signStandard, c.Logger)
	s.handler = s.routes()
	return s, nil
}

// Handler serves the carrier's interface and the control interface.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve serves on ln, which it closes, until ctx ends; it returns nil then.
// Calls that wait in a fault rule end without an answer. Close is still to be called.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	s.config.Logger.Info("carrier simulator serving", "address", ln.Addr().String(), "config", s.config)
	return httpserve.Serve(ctx, ln, s.handler, s.engine.Stop, s.config.Logger)
}

// Close ends waiting calls and webhooks and writes the ledger out. It may be
// called twice.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.engine.Stop()
		s.hooks.Close()
		if s.store.journal != nil {
			s.closeErr = s.store.journal.Close()
		}
	})
	return s.closeErr
}

// Run does it all: listening on c.Address, New, Serve, Close.
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

// now is what is written into shipments: UTC, and without the monotonic
// reading that a restart would lose.
func (s *Server) now() time.Time { return s.config.Now().UTC().Round(0) }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	byPattern := map[string][]operation{}
	for _, op := range operations() {
		byPattern[op.pattern] = append(byPattern[op.pattern], op)
	}
	for pattern, ops := range byPattern {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			query := r.URL.Query()
			s.serve(w, r, ops[slices.IndexFunc(ops, func(op operation) bool { return op.when == nil || op.when(query) })])
		})
	}
	mux.Handle("/_control/", s.engine.Handler(s))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &apiError{http.StatusNotFound, CodeNotFound, "there is no " + r.Method + " " + r.URL.Path})
	})
	return mux
}

func refuse(w http.ResponseWriter, e *apiError) {
	sim.WriteAnswer(w, sim.Answer{Status: e.status, Body: e.body()})
}

// serve takes one request of the carrier's interface to its answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, op operation) {
	if s.config.APIKey != "" && r.Header.Get("Authorization") != "Bearer "+s.config.APIKey {
		refuse(w, &apiError{http.StatusUnauthorized, CodeUnauthorized, "a valid bearer token is needed"})
		return
	}
	in := &input{id: r.PathValue("id"), query: r.URL.Query()}
	run := op.prepare(in, http.MaxBytesReader(w, r.Body, maxBody))
	if in.err != nil {
		run = func(*tx) outcome { return outcome{err: in.err} }
	}
	s.engine.Serve(w, sim.Call{
		Operation: op.name, OrderID: s.orderOf(in), Key: r.Header.Get("Idempotency-Key"), // listed, never heeded
		Baggage: len(r.Header.Values("Baggage")) > 0,
		Apply:   func(_ bool, settle sim.Settle) error { return s.apply(settle, run) },
	})
}

// orderOf finds the order that a call is about: named in the request, or
// that of the shipment which is.
func (s *Server) orderOf(in *input) string {
	if in.request.OrderID != "" {
		return in.request.OrderID
	}
	if order := in.query.Get("order_id"); order != "" {
		return order
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if sh := s.store.shipments[in.id]; sh != nil {
		return sh.OrderID
	}
	if found := s.store.byReference[in.query.Get("reference")]; len(found) > 0 {
		return found[0].OrderID
	}
	return ""
}

// apply runs one operation and makes it and its call durable at once.
func (s *Server) apply(settle sim.Settle, run func(*tx) outcome) error {
	return s.commit(func(t *tx) *control.Call {
		o := run(t)
		_, call := settle(o.answer(), len(t.changed) > 0)
		return &call
	})
}

// commit makes what do changes durable, and then announces it.
func (s *Server) commit(do func(*tx) *control.Call) error {
	s.store.mu.Lock()
	t := &tx{s: &s.store, now: s.now()}
	call := do(t)
	n, err := s.store.append(line{Shipments: t.changed, Call: call})
	events := s.events(t) // before the lock goes, while the shipments hold still
	s.store.mu.Unlock()
	if err := s.store.wait(n, err); err != nil {
		return err
	}
	for _, e := range events {
		s.send(e)
	}
	return nil
}
