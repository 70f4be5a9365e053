package carrier

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	sim "github.com/throughline/throughline/services/simulator/internal/control"
)

// input is what was read from a request; err refuses it.
type input struct {
	id      string
	query   url.Values
	request Request
	err     *apiError
}

// tx collects what one operation changes while the store is locked.
type tx struct {
	s       *store
	now     time.Time
	changed []*Shipment
}

func (t *tx) put(sh *Shipment) {
	t.s.put(sh)
	t.changed = append(t.changed, sh)
}

// outcome is what an operation came to.
type outcome struct {
	status int // default 200
	body   []byte
	err    *apiError
}

func (o outcome) answer() sim.Answer {
	if o.err != nil {
		return sim.Answer{Status: o.err.status, Body: o.err.body()}
	}
	if o.status == 0 {
		o.status = http.StatusOK
	}
	return sim.Answer{Status: o.status, Body: o.body}
}

// An operation is one entry of the carrier's interface. prepare reads the
// request and returns what to do once the store is locked.
type operation struct {
	name    string // as fault rules and the ledger call it
	pattern string
	prepare func(in *input, body io.Reader) func(*tx) outcome
	when    func(url.Values) bool // tells it from later ones of the same pattern; nil is always
}

func operations() []operation {
	return []operation{
		{"shipments.create", "POST /v1/shipments", create, nil},
		{"shipments.get", "GET /v1/shipments/{id}", get, nil},
		{"shipments.find", "GET /v1/shipments", find, func(q url.Values) bool { return q.Get("reference")+q.Get("order_id") != "" }},
		{"shipments.list", "GET /v1/shipments", list, nil},
		{"shipments.cancel", "POST /v1/shipments/{id}/cancel", move((*Shipment).cancel), nil},
		{"shipments.dispatch", "POST /v1/shipments/{id}/dispatch", move((*Shipment).dispatch), nil},
	}
}

func operationNames() []string {
	var names []string
	for _, op := range operations() {
		names = append(names, op.name)
	}
	return names
}

func create(in *input, body io.Reader) func(*tx) outcome {
	d := json.NewDecoder(body)
	if err := d.Decode(&in.request); err != nil {
		in.err = invalid("reading JSON body: " + err.Error())
		return nil
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		in.err = invalid("reading JSON body: something follows the object")
		return nil
	}
	if in.err = in.request.check(); in.err != nil {
		return nil
	}
	return func(t *tx) outcome {
		sh := &Shipment{
			ID: "shp_" + rand.Text()[:24], Status: Created, Request: in.request, CreatedAt: t.now, UpdatedAt: t.now,
		}
		t.put(sh)
		return outcome{status: http.StatusCreated, body: encode(sh)}
	}
}

func get(in *input, _ io.Reader) func(*tx) outcome {
	return func(t *tx) outcome {
		sh := t.s.shipments[in.id]
		if sh == nil {
			return notFound(in.id)
		}
		return outcome{body: encode(sh)}
	}
}

func notFound(id string) outcome {
	return outcome{err: &apiError{http.StatusNotFound, CodeNotFound, "there is no shipment " + id}}
}

func find(in *input, _ io.Reader) func(*tx) outcome {
	reference, order := in.query.Get("reference"), in.query.Get("order_id")
	return func(t *tx) outcome {
		list := t.s.byReference[reference]
		if reference == "" {
			list = t.s.byOrder[order]
		}
		found := []*Shipment{}
		for _, sh := range list {
			if order == "" || sh.OrderID == order {
				found = append(found, sh)
			}
		}
		return outcome{body: encode(map[string]any{"shipments": found})}
	}
}

// move is an operation that changes the status of one shipment.
func move(change func(*Shipment, time.Time) (bool, *apiError)) func(*input, io.Reader) func(*tx) outcome {
	return func(in *input, _ io.Reader) func(*tx) outcome {
		return func(t *tx) outcome {
			sh := t.s.shipments[in.id]
			if sh == nil {
				return notFound(in.id)
			}
			changed, e := change(sh, t.now)
			if e != nil {
				return outcome{err: e}
			}
			if changed {
				t.put(sh)
			}
			return outcome{body: encode(sh)}
		}
	}
}
