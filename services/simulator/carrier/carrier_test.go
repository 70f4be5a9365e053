package carrier_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/throughline/throughline/services/simulator/carrier"
	"github.com/throughline/throughline/services/simulator/control"
)

// simulator is a running carrier simulator, seen only through HTTP.
type simulator struct {
	t       *testing.T
	url     string
	control *control.Client
	stop    func()
}

func start(t *testing.T, c carrier.Config) *simulator {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	server, err := carrier.New(c)
	if err != nil {
		t.Fatalf("starting: %v", err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, ln) }()
	s := &simulator{t: t, url: "http://" + ln.Addr().String()}
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-served, server.Close()); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	t.Cleanup(s.stop)
	s.control = control.New(s.url)
	return s
}

// answer is what a call was answered with; of the members only those that the
// answer has are set.
type answer struct {
	httpStatus int
	body       string
	carrier.Shipment
	Shipments []carrier.Shipment `json:"shipments"`
	Next      string             `json:"next"`
	Error     struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (s *simulator) call(method, path string, body any) answer {
	s.t.Helper()
	a, err := s.try(method, path, body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// transport has no kept-alive connections, so that a dropped answer is seen.
var transport = &http.Transport{DisableKeepAlives: true}

func (s *simulator) try(method, path string, body any) (a answer, err error) {
	var sent []byte
	switch b := body.(type) {
	case nil:
	case string:
		sent = []byte(b)
	default:
		if sent, err = json.Marshal(b); err != nil {
			return a, err
		}
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, bytes.NewReader(sent))
	if err != nil {
		return a, err
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: transport}
	resp, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	a.httpStatus, a.body = resp.StatusCode, string(got)
	return a, json.Unmarshal(got, &a)
}

func request(order string) carrier.Request {
	return carrier.Request{
		Reference: "ref-" + order, OrderID: order, Name: "A. Buyer", Line1: "1 High St", City: "Berlin",
		PostalCode: "10115", Country: "DE", Items: []carrier.Item{{SKU: "BOOK-1", Quantity: 2}},
	}
}

// in brings a new shipment of the order into the status.
func (s *simulator) in(order, status string) string {
	s.t.Helper()
	a := s.call("POST", "/v1/shipments", request(order))
	id := a.ID
	switch status {
	case carrier.Dispatched:
		a = s.call("POST", "/v1/shipments/"+id+"/dispatch", nil)
	case carrier.Cancelled:
		a = s.call("POST", "/v1/shipments/"+id+"/cancel", nil)
	case carrier.Lost:
		if _, err := s.control.Act(s.t.Context(), order, "lose"); err != nil {
			s.t.Fatal(err)
		}
		a = s.call("GET", "/v1/shipments/"+id, nil)
	}
	if a.Status != status || id == "" {
		s.t.Fatalf("bringing shipment to %s: got %s", status, a.body)
	}
	return id
}

func (s *simulator) ledger(order string) control.CarrierLedger {
	s.t.Helper()
	l, err := s.control.CarrierLedger(s.t.Context(), order)
	if err != nil {
		s.t.Fatalf("reading ledger: %v", err)
	}
	return l
}

func (s *simulator) fault(f control.Fault) string {
	s.t.Helper()
	id, err := s.control.AddFault(s.t.Context(), f)
	if err != nil {
		s.t.Fatalf("adding fault: %v", err)
	}
	return id
}

func TestCreateGetFind(t *testing.T) {
	t.Parallel()
	s := start(t, carrier.Config{})
	made := s.call("POST", "/v1/shipments", request("o"))
	if made.httpStatus != 201 || made.Status != carrier.Created || made.Reference != "ref-o" || made.OrderID != "o" ||
		made.PostalCode != "10115" || len(made.Items) != 1 || made.CreatedAt.IsZero() {
		t.Errorf("create: got %d %s", made.httpStatus, made.body)
	}
	if got := s.call("GET", "/v1/shipments/"+made.ID, nil); got.httpStatus != 200 || got.body != made.body {
		t.Errorf("get: got %d %s, want %s", got.httpStatus, got.body, made.body)
	}
	if got := s.call("GET", "/v1/shipments?reference=ref-o", nil); len(got.Shipments) != 1 || got.Shipments[0].ID != made.ID {
		t.Errorf("find: got %s", got.body)
	}
	if got := s.call("GET", "/v1/shipments?reference=nope", nil); got.httpStatus != 200 || got.body != `{"shipments":[]}` {
		t.Errorf("find nothing: got %d %s", got.httpStatus, got.body)
	}
	if got := s.call("GET", "/v1/shipments?reference=ref-o&order_id=other", nil); len(got.Shipments) != 0 {
		t.Errorf("find by both: got %s", got.body)
	}
}

// The one thing that this carrier does not do.
func TestNoDeduplication(t *testing.T) {
	t.Parallel()
	s := start(t, carrier.Config{})
	for range 3 {
		s.call("POST", "/v1/shipments", request("o"))
	}
	if got := s.call("GET", "/v1/shipments?reference=ref-o", nil); len(got.Shipments) != 3 {
		t.Errorf("shipments under one reference: got %d, want 3", len(got.Shipments))
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := start(t, carrier.Config{})
	with := func(change func(*carrier.Request)) carrier.Request {
		r := request("o")
		change(&r)
		return r
	}
	tests := map[string]struct {
		method, path string
		body         any
		status       int
		code         string
	}{
		"postal code":      {"POST", "/v1/shipments", with(func(r *carrier.Request) { r.PostalCode = "00000" }), 422, carrier.CodeAddressRefused},
		"country":          {"POST", "/v1/shipments", with(func(r *carrier.Request) { r.Country = "AQ" }), 422, carrier.CodeAddressRefused},
		"PO box":           {"POST", "/v1/shipments", with(func(r *carrier.Request) { r.Line1 = "P" + "o BOX 12" }), 422, carrier.CodeAddressRefused},
		"no reference":     {"POST", "/v1/shipments", with(func(r *carrier.Request) { r.Reference = "" }), 400, carrier.CodeInvalidRequest},
		"no name":          {"POST", "/v1/shipments", with(func(r *carrier.Request) { r.Name = " " }), 400, carrier.CodeInvalidRequest},
		"country name":     {"POST", "/v1/shipments", with(func(r *carrier.Request) { r.Country = "Germany" }), 400, carrier.CodeInvalidRequest},
		"no quantity":      {"POST", "/v1/shipments", with(func(r *carrier.Request) { r.Items[0].Quantity = 0 }), 400, carrier.CodeInvalidRequest},
		"no JSON":          {"POST", "/v1/shipments", "send it", 400, carrier.CodeInvalidRequest},
		"two objects":      {"POST", "/v1/shipments", "{}{}", 400, carrier.CodeInvalidRequest},
		"page of nothing":  {"GET", "/v1/shipments?limit=0", nil, 400, carrier.CodeInvalidRequest},
		"page of too many": {"GET", "/v1/shipments?limit=1001", nil, 400, carrier.CodeInvalidRequest},
		"page after what":  {"GET", "/v1/shipments?after=shp_nope", nil, 400, carrier.CodeInvalidRequest},
		"page from when":   {"GET", "/v1/shipments?created_from=yesterday", nil, 400, carrier.CodeInvalidRequest},
		"get unknown":      {"GET", "/v1/shipments/shp_nope", nil, 404, carrier.CodeNotFound},
		"cancel unknown":   {"POST", "/v1/shipments/shp_nope/cancel", nil, 404, carrier.CodeNotFound},
		"dispatch unknown": {"POST", "/v1/shipments/shp_nope/dispatch", nil, 404, carrier.CodeNotFound},
		"unknown path":     {"GET", "/v2/shipments", nil, 404, carrier.CodeNotFound},
	}
	// The group ends when its parallel parts have ended.
	t.Run("each", func(t *testing.T) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := s.call(test.method, test.path, test.body)
				if got.httpStatus != test.status || got.Error.Code != test.code || got.Error.Message == "" {
					t.Errorf("got %d %s, want %d %s", got.httpStatus, got.body, test.status, test.code)
				}
			})
		}
	})
	if n := len(s.ledger("").Shipments); n != 0 {
		t.Errorf("shipments made by refused requests: got %d, want none", n)
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	s := start(t, carrier.Config{})
	tests := []struct {
		from, do string
		status   int
		code, to string
	}{
		{carrier.Created, "cancel", 200, "", carrier.Cancelled},
		{carrier.Created, "dispatch", 200, "", carrier.Dispatched},
		{carrier.Cancelled, "cancel", 200, "", carrier.Cancelled},
		{carrier.Cancelled, "dispatch", 409, carrier.CodeCancelled, carrier.Cancelled},
		{carrier.Dispatched, "dispatch", 200, "", carrier.Dispatched},
		{carrier.Dispatched, "cancel", 409, carrier.CodeAlreadyDispatched, carrier.Dispatched},
		{carrier.Lost, "cancel", 409, carrier.CodeLost, carrier.Lost},
		{carrier.Lost, "dispatch", 409, carrier.CodeLost, carrier.Lost},
	}
	for _, test := range tests {
		order := test.from + "-" + test.do
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			id := s.in(order, test.from)
			got := s.call("POST", "/v1/shipments/"+id+"/"+test.do, nil)
			if got.httpStatus != test.status || got.Error.Code != test.code {
				t.Errorf("got %d %s, want %d %q", got.httpStatus, got.body, test.status, test.code)
			}
			l := s.ledger(order)
			if l.Shipments[0].Status != test.to {
				t.Errorf("status: got %s, want %s", l.Shipments[0].Status, test.to)
			}
			last := l.Calls[len(l.Calls)-1]
			if want := test.from != test.to; last.Effect != want || last.Status != test.status || last.OrderID != order {
				t.Errorf("call: got %+v, want effect %t", last, want)
			}
		})
	}
}

func TestActs(t *testing.T) {
	t.Parallel()
	s := start(t, carrier.Config{})
	tests := []struct{ from, do, to string }{
		{carrier.Created, "cancel", carrier.Cancelled},
		{carrier.Created, "lose", carrier.Lost},
		{carrier.Dispatched, "lose", carrier.Lost},
		{carrier.Dispatched, "cancel", ""},
		{carrier.Cancelled, "lose", ""},
	}
	for _, test := range tests {
		order := test.from + "-" + test.do
		id := s.in(order, test.from)
		acted, err := s.control.Act(t.Context(), order, test.do)
		if test.to == "" {
			var e *control.Error
			if !errors.As(err, &e) || e.Status != 409 {
				t.Errorf("%s: got %v, %v; want a conflict", order, acted, err)
			}
			continue
		}
		if err != nil || len(acted) != 1 || acted[0] != id {
			t.Errorf("%s: got %v, %v; want [%s]", order, acted, err, id)
		}
		if got := s.call("GET", "/v1/shipments/"+id, nil).Status; got != test.to {
			t.Errorf("%s: got %s, want %s", order, got, test.to)
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault  control.Fault
		status int // 0: no answer
		made   int
	}{
		"drop_after":  {control.Fault{Action: control.DropAfter}, 0, 1},
		"fail_before": {control.Fault{Action: control.FailBefore, Status: 503}, 503, 0},
		"fail_after":  {control.Fault{Action: control.FailAfter}, 500, 1},
		"answer":      {control.Fault{Action: control.AnswerWith, Status: 418, Body: `{"error":{"code":"teapot"}}`}, 418, 0},
		"delay":       {control.Fault{Action: control.Delay, DelayMS: 1}, 201, 1},
		"stored":      {control.Fault{Action: control.FailBefore, Stored: new(bool)}, 500, 0},
		"no_dedup":    {control.Fault{Action: control.NoDedup}, 201, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, carrier.Config{})
			test.fault.Operation, test.fault.OrderID, test.fault.Times = "shipments.create", "o", 1
			s.fault(test.fault)
			s.call("POST", "/v1/shipments", request("other"))
			got, err := s.try("POST", "/v1/shipments", request("o"))
			if (err != nil) != (test.status == 0) || got.httpStatus != test.status {
				t.Errorf("got %d %s, %v; want %d", got.httpStatus, got.body, err, test.status)
			}
			l := s.ledger("o")
			if len(l.Shipments) != test.made || len(l.Calls) != 1 || l.Calls[0].Effect != (test.made == 1) {
				t.Errorf("ledger: got %+v, want %d shipments", l, test.made)
			}
			if again := s.call("POST", "/v1/shipments", request("o")); again.httpStatus != 201 {
				t.Errorf("next call: got %d %s, want 201", again.httpStatus, again.body)
			}
		})
	}
}

func TestHoldCreate(t *testing.T) {
	t.Parallel()
	s := start(t, carrier.Config{})
	s.fault(control.Fault{Operation: "shipments.create", Action: control.Hold, Nth: 2})
	s.call("POST", "/v1/shipments", request("o"))
	done := make(chan error, 1)
	go func() { _, err := s.try("POST", "/v1/shipments", request("o")); done <- err }()
	for held := false; !held; {
		states, err := s.control.Faults(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = states[0].Held == 1
	}
	if n := len(s.ledger("o").Shipments); n != 1 {
		t.Errorf("while held: got %d shipments, want 1", n)
	}
	if n, err := s.control.Release(t.Context(), ""); n != 1 || err != nil {
		t.Errorf("release: got %d, %v", n, err)
	}
	if err := <-done; err != nil {
		t.Errorf("held call: %v", err)
	}
	if n := len(s.ledger("o").Shipments); n != 2 {
		t.Errorf("after release: got %d shipments, want 2", n)
	}
}

func TestDurable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, carrier.Config{DataDir: dir})
	for _, status := range []string{carrier.Created, carrier.Dispatched, carrier.Cancelled, carrier.Lost} {
		s.in(status, status)
	}
	before, err := json.Marshal(s.ledger(""))
	if err != nil {
		t.Fatal(err)
	}
	// Killed: the file as it is now, with a line half written.
	written, err := os.ReadFile(filepath.Join(dir, "carrier.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	killed := t.TempDir()
	if err := os.WriteFile(filepath.Join(killed, "carrier.jsonl"), append(written, `{"shipments":[{"id":`...), 0o600); err != nil {
		t.Fatal(err)
	}
	s.stop()
	for name, dir := range map[string]string{"stopped": dir, "killed": killed} {
		s := start(t, carrier.Config{DataDir: dir})
		after, err := json.Marshal(s.ledger(""))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(after, before) {
			t.Errorf("%s: got %s, want %s", name, after, before)
		}
		if got := s.call("GET", "/v1/shipments?reference=ref-created", nil); len(got.Shipments) != 1 {
			t.Errorf("%s: find by reference: got %s", name, got.body)
		}
		if err := s.control.Reset(t.Context()); err != nil {
			t.Errorf("%s: reset: %v", name, err)
		}
		if n := len(s.ledger("").Shipments); n != 0 {
			t.Errorf("%s: after reset: got %d shipments", name, n)
		}
	}
}

func TestAPIKey(t *testing.T) {
	t.Parallel()
	s := start(t, carrier.Config{APIKey: "k"})
	if got := s.call("POST", "/v1/shipments", request("o")); got.httpStatus != 401 || got.Error.Code != carrier.CodeUnauthorized {
		t.Errorf("got %d %s, want 401", got.httpStatus, got.body)
	}
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdef")
	got := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("reading webhook: %v", err)
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(r.Header.Get("Webhook-Id") + "." + r.Header.Get("Webhook-Timestamp") + "."))
		mac.Write(body)
		if r.Header.Get("Webhook-Signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
			got <- "forged"
			return
		}
		var e struct {
			Type string           `json:"type"`
			Data carrier.Shipment `json:"data"`
		}
		if err := json.Unmarshal(body, &e); err != nil {
			t.Errorf("reading webhook: %v", err)
		}
		got <- e.Type + " " + e.Data.Status
	}))
	t.Cleanup(receiver.Close)
	s := start(t, carrier.Config{
		WebhookURL: receiver.URL, WebhookSecret: "whsec_" + base64.StdEncoding.EncodeToString(key),
	})
	next := func(want string) {
		t.Helper()
		select {
		case have := <-got:
			if have != want {
				t.Errorf("webhook: got %q, want %q", have, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no webhook; want %q", want)
		}
	}
	id := s.call("POST", "/v1/shipments", request("o")).ID
	next("shipment.created created")
	s.call("POST", "/v1/shipments/"+id+"/dispatch", nil)
	next("shipment.dispatched dispatched")
	for _, q := range []control.WebhookRequest{
		{Event: "shipment.created", OrderID: "o"}, {Event: "shipment.created", OrderID: "o", BadSignature: true},
	} {
		if _, err := s.control.Webhook(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		if q.BadSignature {
			next("forged")
		} else {
			next("shipment.created created")
		}
	}
}
