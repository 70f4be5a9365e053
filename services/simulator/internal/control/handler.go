package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/throughline/throughline/services/simulator/control"
)

// ErrNotFound and ErrConflict, wrapped by a Simulator's methods, become 404
// and 409; any other error becomes 400.
var (
	ErrNotFound = errors.New("not found")
	ErrConflict = errors.New("not possible now")
)

// A Simulator is what the control interface controls.
type Simulator interface {
	// Ledger returns what is to be answered as the ledger of one order, or
	// with "" of all.
	Ledger(orderID string) any
	// Reset forgets everything.
	Reset() error
	// Act does what a person does elsewhere; it returns the changed objects.
	Act(orderID, do string) ([]string, error)
	// Webhook queues a webhook and returns the event's id.
	Webhook(control.WebhookRequest) (string, error)
}

// maxControlBody bounds a control request; a fault's body is the largest part.
const maxControlBody = 4 << 20

// Handler serves the control interface of s under /_control/.
func (e *Engine) Handler(s Simulator) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_control/ledger", func(w http.ResponseWriter, r *http.Request) {
		reply(w, s.Ledger(r.URL.Query().Get("order_id")), nil)
	})
	mux.HandleFunc("GET /_control/faults", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"faults": e.rules.list()}, nil)
	})
	mux.HandleFunc("POST /_control/faults", func(w http.ResponseWriter, r *http.Request) {
		var f control.Fault
		if !read(w, r, &f) {
			return
		}
		id, err := e.rules.add(f)
		reply(w, map[string]string{"id": id}, err)
	})
	mux.HandleFunc("DELETE /_control/faults", func(w http.ResponseWriter, _ *http.Request) {
		released := e.rules.remove(func(*rule) bool { return true })
		reply(w, map[string]int{"released": released}, nil)
	})
	mux.HandleFunc("DELETE /_control/faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		if !e.rules.has(id) {
			reply(w, nil, fmt.Errorf("fault %q: %w", id, ErrNotFound))
			return
		}
		released := e.rules.remove(func(x *rule) bool { return x.ID == id })
		reply(w, map[string]int{"released": released}, nil)
	})
	mux.HandleFunc("POST /_control/release", e.release)
	mux.HandleFunc("POST /_control/reset", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, struct{}{}, s.Reset())
	})
	mux.HandleFunc("POST /_control/act", func(w http.ResponseWriter, r *http.Request) {
		var a control.ActRequest
		if !read(w, r, &a) {
			return
		}
		if a.OrderID == "" {
			reply(w, nil, errors.New("order_id is missing"))
			return
		}
		acted, err := s.Act(a.OrderID, a.Do)
		reply(w, map[string][]string{"acted": acted}, err)
	})
	mux.HandleFunc("POST /_control/webhooks", func(w http.ResponseWriter, r *http.Request) {
		var q control.WebhookRequest
		if !read(w, r, &q) {
			return
		}
		if q.Times < 0 || q.DelayMS < 0 || q.Event == "" || q.OrderID == "" {
			reply(w, nil, errors.New("event and order_id must be given, times and delay_ms must not be negative"))
			return
		}
		id, err := s.Webhook(q)
		reply(w, map[string]string{"id": id}, err)
	})
	mux.HandleFunc("/_control/", func(w http.ResponseWriter, r *http.Request) {
		reply(w, nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, ErrNotFound))
	})
	return loopbackOnly(mux)
}

func (e *Engine) release(w http.ResponseWriter, r *http.Request) {
	var q struct {
		ID string `json:"id"`
	}
	if r.ContentLength != 0 && !read(w, r, &q) {
		return
	}
	if q.ID != "" && !e.rules.has(q.ID) {
		reply(w, nil, fmt.Errorf("fault %q: %w", q.ID, ErrNotFound))
		return
	}
	reply(w, map[string]int{"released": e.rules.release(q.ID)}, nil)
}

// loopbackOnly keeps the control interface to this machine, whatever address
// the simulator itself is served on.
func loopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			writeError(w, http.StatusForbidden, "the control interface is for loopback callers only")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// read decodes one JSON object strictly; on bad input it answers 400 itself.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControlBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		writeError(w, http.StatusBadRequest, "reading JSON body: "+err.Error())
		return false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		writeError(w, http.StatusBadRequest, "reading JSON body: something follows the object")
		return false
	}
	return true
}

func reply(w http.ResponseWriter, v any, err error) {
	switch {
	case errors.Is(err, ErrNotFound):
		writeError(w, http.StatusNotFound, err.Error())
		return
	case errors.Is(err, ErrConflict):
		writeError(w, http.StatusConflict, err.Error())
		return
	case err != nil:
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	body, err := json.Marshal(v)
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	WriteAnswer(w, Answer{Status: http.StatusOK, Body: append(body, '\n')})
}

func writeError(w http.ResponseWriter, status int, message string) {
	// A map of strings cannot fail to encode.
	body, _ := json.Marshal(map[string]any{"error": map[string]string{"message": message}})
	WriteAnswer(w, Answer{Status: status, Body: append(body, '\n')})
}
