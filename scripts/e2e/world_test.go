package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// world is a system on servers of the test's own, with a proxy between each service and its database.
type world struct {
	*system.System
	t       *testing.T
	proxies map[string]*toxiproxy.Proxy
	// db leads to each service's database past the proxy, as databases does.
	db        map[string]*pgxpool.Pool
	databases map[string]string
	// broker is nil if it runs elsewhere; brokerURL leads to it past what stands before it.
	broker     *natsserver.Server
	brokerURL  string
	shop, mall *system.Client
}

func newWorld(t *testing.T, o system.Options) *world {
	t.Helper()
	broker := messagingtest.New(t)
	w := newWorldOn(t, o, broker.URL(), broker.URL())
	w.broker = broker
	return w
}

// newWorldOn makes a world on a broker that the services reach by another address.
func newWorldOn(t *testing.T, o system.Options, brokerURL, servicesURL string) *world {
	t.Helper()
	databases := make(map[string]string)
	for _, service := range services {
		databases[service] = pgtest.URL(t)
	}
	return newWorldAt(t, o, brokerURL, servicesURL, databases)
}

// newWorldAt makes a world on a broker and databases that exist.
func newWorldAt(t *testing.T, o system.Options, brokerURL, servicesURL string, databases map[string]string) *world {
	t.Helper()
	w := &world{t: t, proxies: map[string]*toxiproxy.Proxy{}, db: map[string]*pgxpool.Pool{}, brokerURL: brokerURL, databases: databases}
	proxies := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	o.Environ = append(o.Environ, "NATS_URL="+servicesURL, "THROUGHLINE_API_KEYS=storefront=key-of-the-storefront,marketplace=key-of-the-marketplace")
	for _, service := range services {
		direct := databases[service]
		u, err := url.Parse(direct)
		if err != nil {
			t.Fatal(err)
		}
		p := toxiproxy.NewProxy(proxies, service, "127.0.0.1:0", u.Host)
		if err := p.Start(); err != nil {
			t.Fatalf("starting the proxy before the database of %s: %v", service, err)
		}
		t.Cleanup(p.Stop)
		u.Host = p.Listen
		w.proxies[service], w.db[service] = p, pgtest.Open(t, direct)
		o.Environ = append(o.Environ, strings.ToUpper(service)+"_DATABASE_URL="+u.String())
	}
	w.System = system.Start(t, o)
	w.shop, w.mall = w.Storefront(), w.Marketplace()
	w.shop.Key, w.mall.Key = "key-of-the-storefront", "key-of-the-marketplace"
	return w
}

// cut ends all connections of a service to its database and lets none in; the answer lets them in again.
func (w *world) cut(service string) (mend func()) {
	w.t.Helper()
	p := w.proxies[service]
	p.Stop()
	return func() {
		w.t.Helper()
		if err := p.Start(); err != nil {
			w.t.Fatalf("starting the proxy before the database of %s again: %v", service, err)
		}
	}
}

func (w *world) exec(service, sql string, args ...any) {
	w.t.Helper()
	if _, err := w.db[service].Exec(context.Background(), sql, args...); err != nil {
		w.t.Fatalf("%s: %s: %v", service, sql, err)
	}
}

func (w *world) count(service, sql string, args ...any) int {
	w.t.Helper()
	var n int
	if err := w.db[service].QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %s: %v", service, sql, err)
	}
	return n
}

// answer is what came back over HTTP.
type answer struct {
	*system.Answer
	err error // of the connection
}

// ask sends one request as it is. Header lines come in pairs of name and value, and are sent on lines of their own. Every answer of 400 or
// more must be a problem document.
func ask(ctx context.Context, t *testing.T, c *system.Client, gateway int, method, path, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, c.URLs[gateway%len(c.URLs)]+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = nil
	req.Header.Set("Authorization", "Bearer "+c.Key)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	seen := map[string]bool{}
	for i := 0; i < len(header); i += 2 {
		name := http.CanonicalHeaderKey(header[i])
		if !seen[name] {
			delete(req.Header, name)
		}
		seen[name] = true
		if header[i+1] != absent {
			req.Header[name] = append(req.Header[name], header[i+1])
		}
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return answer{&system.Answer{}, err}
	}
	defer resp.Body.Close()
	a := &system.Answer{Status: resp.StatusCode, Header: resp.Header, Replayed: resp.Header.Get("Idempotency-Replayed") == "true"}
	if a.Body, err = io.ReadAll(resp.Body); err != nil {
		return answer{a, err}
	}
	into := any(&a.Order)
	if a.Status >= http.StatusBadRequest {
		into = &a.Problem
		if got := resp.Header.Get("Content-Type"); got != "application/problem+json" {
			t.Errorf("%s %s: got %d with Content-Type %q, want a problem: %s", method, path, a.Status, got, a.Body)
		}
	}
	if err := json.Unmarshal(a.Body, into); err != nil {
		t.Errorf("%s %s: reading %d %q: %v", method, path, a.Status, a.Body, err)
	}
	return answer{a, nil}
}

// absent in the place of a header's value leaves the header out.
const absent = "\x00absent"

// place sends R0, or another body, with header lines for the key.
func (w *world) place(ctx context.Context, t *testing.T, body string, header ...string) answer {
	t.Helper()
	return ask(ctx, t, w.shop, 0, http.MethodPost, "/v1/orders", body, header...)
}

func wantStatus(t *testing.T, what string, a answer, want int, reason string) {
	t.Helper()
	if a.err != nil || a.Status != want || (reason != "" && a.Problem.Reason != reason) {
		t.Errorf("%s: got %d %s %s (%v), want %d %s", what, a.Status, a.Problem.Reason, a.Body, a.err, want, reason)
	}
}

func wantCreated(t *testing.T, what string, a answer, replayed bool) {
	t.Helper()
	wantStatus(t, what, a, http.StatusCreated, "")
	if a.Replayed != replayed {
		t.Errorf("%s: got replayed %v, want %v", what, a.Replayed, replayed)
	}
}

// r0 is the order that succeeds, with some of its text replaced: old, new, old, new.
func r0(replace ...string) string {
	body := system.Order{}.JSON()
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(body, replace[i]) {
			panic(fmt.Sprintf("R0 has no %q", replace[i]))
		}
		body = strings.Replace(body, replace[i], replace[i+1], 1)
	}
	return body
}

// settled waits until everything has come to rest, and checks what must hold of all orders. It gives how many there are.
func (w *world) settled(ctx context.Context, t *testing.T) int {
	t.Helper()
	system.Eventually(ctx, t, "all orders to come to rest", func() bool {
		return w.count("order", `SELECT count(*) FROM customer_order WHERE status IN ('PENDING', 'COMPENSATING')`) == 0
	})
	var orders []verify.Order
	for _, c := range []*system.Client{w.shop, w.mall} {
		list, err := c.Orders(ctx)
		if err != nil {
			t.Fatal(err)
		}
		orders = append(orders, list...)
	}
	payments, err := w.Provider.PaymentLedger(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	shipments, err := w.Carrier.CarrierLedger(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verify.Settled(orders, payments, shipments) {
		t.Errorf("broken rule: %s", v)
	}
	return len(orders)
}

// charged gives what an order was charged and what of it was refunded, in the provider's own numbers.
func (w *world) charged(ctx context.Context, t *testing.T, id string) (intents int, currency string, captured, refunded int64) {
	t.Helper()
	ledger, err := w.Provider.PaymentLedger(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range ledger.Intents {
		currency = in.Currency
		if in.AmountCaptured > 0 {
			intents++
		}
		captured += in.AmountCaptured
		refunded += in.AmountRefunded
	}
	return intents, currency, captured, refunded
}

const patience = 2 * time.Minute
