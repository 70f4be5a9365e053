// Package web is the console's pages.
//
// Pages are made on the server from templates that escape by context. What a customer or an operator typed is data in all of them, and
// the Content-Security-Policy allows nothing but the two files that are served here: no inline script or style, no other host, no frame.
// Scripts only add to pages that work without them.
//
// Whatever changes something is a POST from a page of the console itself: requests that another site caused are refused by what the
// browser says about their origin, and the session cookie is not sent with them. A confirmation carries a key, under which it is done once,
// however often it is sent.
package web

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/throughline/throughline/services/console/internal/live"
	"github.com/throughline/throughline/services/console/internal/operator"
	"github.com/throughline/throughline/services/console/internal/session"
	"github.com/throughline/throughline/services/internal/trail"
)

const (
	// maxBody bounds what a form sends: a reason of 1000 bytes, threefold for its escapes, and short fields.
	maxBody = 8 << 10
	// pageTimeout bounds the asking for one page, findTimeout the search for an id: services may look through all steps for a derived one, for
	// 20 s at most.
	pageTimeout = 8 * time.Second
	findTimeout = 25 * time.Second
)

// Config makes a Server.
type Config struct {
	Services *operator.Services
	Board    *live.Board
	List     *live.List
	Sampler  *live.Sampler
	Trail    *trail.Assembler
	Sessions *session.Store
	Tries    *session.Tries
	// JaegerURL is where Jaeger is for browsers; empty makes no links.
	JaegerURL string
	// PublicURL is where browsers find the console, if not at the address that they name in their requests.
	PublicURL string
	// Secure is set where browsers come over https.
	Secure bool
	Logger *slog.Logger
}

// Server is the console's pages.
type Server struct {
	cfg      Config
	pages    *pages
	actions  *actions
	streams  chan struct{} // a place for each open stream
	draining chan struct{}
}

// New makes a Server.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.JaegerURL = strings.TrimSuffix(cfg.JaegerURL, "/")
	s := &Server{
		cfg: cfg, actions: newActions(), streams: make(chan struct{}, maxStreams), draining: make(chan struct{}),
	}
	s.pages = mustParsePages(cfg.JaegerURL, cfg.Logger)
	return s
}

// Drain ends the streams, which end by nothing else.
func (s *Server) Drain() { close(s.draining) }

// Handler gives the handler of all pages. others, by pattern, are served to everybody.
func (s *Server) Handler(others map[string]http.Handler) (http.Handler, error) {
	mux := http.NewServeMux()
	for pattern, h := range others {
		mux.Handle(pattern, h)
	}
	mux.Handle("GET /static/{file}", s.pages.static())
	mux.HandleFunc("GET /login", s.showLogin)
	mux.HandleFunc("POST /login", s.login)
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request, visit){
		"POST /logout":                               s.logout,
		"GET /{$}":                                   s.showNow,
		"GET /live":                                  s.streamNow,
		"GET /find":                                  s.find,
		"GET /orders/{id}":                           s.showStory,
		"GET /orders/{id}/story.json":                s.exportStory,
		"GET /orders/{id}/reveal":                    s.confirmReveal,
		"POST /orders/{id}/reveal":                   s.reveal,
		"GET /attention":                             s.listAttention,
		"GET /attention/{id}":                        s.showCase,
		"GET /attention/{id}/{decision}":             s.confirmDecision,
		"POST /attention/{id}/{decision}":            s.decide,
		"GET /dead-letters":                          s.listLetters,
		"GET /dead-letters/{service}/{id}":           s.showLetter,
		"GET /dead-letters/{service}/{id}/{action}":  s.confirmLetter,
		"POST /dead-letters/{service}/{id}/{action}": s.actOnLetter,
		"GET /services":                              s.showServices,
		"/":                                          s.notFound,
	} {
		mux.HandleFunc(pattern, s.known(h))
	}
	guard := http.NewCrossOriginProtection()
	if s.cfg.PublicURL != "" {
		if err := guard.AddTrustedOrigin(origin(s.cfg.PublicURL)); err != nil {
			return nil, err
		}
	}
	guard.SetDenyHandler(http.HandlerFunc(s.denyCrossOrigin))
	return s.secure(guard.Handler(bounded(mux))), nil
}

// origin cuts a URL down to scheme and host.
func origin(publicURL string) string {
	scheme, rest, _ := strings.Cut(publicURL, "://")
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host
}

// policy is the Content-Security-Policy of everything that is served.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'"

// secure sets the headers that keep a page to itself.
func (s *Server) secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		if s.cfg.Secure {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// bounded bounds bodies, and the time of everything but streams.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		limit := pageTimeout
		switch r.URL.Path {
		case "/live":
			next.ServeHTTP(w, r)
			return
		case "/find":
			limit = findTimeout
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		r = r.WithContext(ctx)
		next.ServeHTTP(w, r)
	})
}

// NewHTTPServer makes the HTTP server around a handler.
func NewHTTPServer(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		MaxHeaderBytes:    16 << 10,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		// Streams set their own deadline before each write.
		WriteTimeout: findTimeout + 10*time.Second,
		IdleTimeout:  90 * time.Second,
		ErrorLog:     slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
