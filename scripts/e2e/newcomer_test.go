package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/rs/zerolog"

	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// TestNewcomer places orders with a client that knows nothing but the served document, over a network that loses one answer in three after the
// request has gone through: the whole answer, or all but its beginning. It ends with one order for each key, each charged once.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	s := system.Start(t, system.Options{})
	ctx := system.Context(t, patience)
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "network", "127.0.0.1:0", strings.TrimPrefix(s.URL, "http://"))
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	n := newNewcomer(ctx, t, s.URL, "http://"+proxy.Listen)
	// Together a third of all connections, which carry one request each: 2/9 + (1 - 2/9)/7.
	for name, toxic := range map[string]string{
		"nothing": `{"name":"nothing","type":"limit_data","stream":"downstream","toxicity":0.2222,"attributes":{"bytes":0}}`,
		"half":    `{"name":"half","type":"limit_data","stream":"downstream","toxicity":0.1429,"attributes":{"bytes":150}}`,
	} {
		if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			t.Fatalf("adding the toxic %s: %v", name, err)
		}
	}

	const orders = 120
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]bool{}
	for i := range orders {
		wg.Go(func() {
			id, err := n.order(ctx, fmt.Sprintf("cart-%d", i), int64(i%5+1))
			if err != nil {
				t.Errorf("cart %d: %v", i, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[id] = true
		})
	}
	wg.Wait()
	if len(ids) != orders {
		t.Errorf("got %d ids of orders, want %d", len(ids), orders)
	}
	if lost := n.lost.Load(); lost < orders/6 {
		t.Errorf("got %d answers lost, want about %d: the network is too good", lost, orders/2)
	}
	byStatus := s.Check(ctx)
	if got := len(byStatus[verify.Confirmed]); got != orders {
		t.Errorf("got %d confirmed orders of %d", got, orders)
	}
	for _, o := range byStatus[verify.Confirmed] {
		if !ids[o.ID] {
			t.Errorf("order %s is not one that the client knows of", o.ID)
		}
	}
}

// newcomer is a client as somebody would write it who has read the document and nothing else.
type newcomer struct {
	through string
	key     string
	body    string
	http    *http.Client
	lost    atomic.Int64
}

func newNewcomer(ctx context.Context, t *testing.T, served, through string) *newcomer {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(get(ctx, t, served+"/openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	example, err := json.Marshal(doc.Paths.Value("/v1/orders").Post.RequestBody.Value.Content.Get("application/json").Example)
	if err != nil || !bytes.Contains(example, []byte(`"quantity":2`)) {
		t.Fatalf("got the example %s, %v, want an order of two", example, err)
	}
	return &newcomer{through: through, body: string(example), key: "tl_dev_storefront",
		// A connection for each call, so that each can be lost, and none is repeated by net/http.
		http: &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
}

var errUndecided = errors.New("the outcome is not known")

// order repeats one call until its outcome is known, as the document says. It gives the order's id.
func (n *newcomer) order(ctx context.Context, key string, quantity int64) (string, error) {
	body := strings.Replace(n.body, `"quantity":2`, `"quantity":`+strconv.FormatInt(quantity, 10), 1)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		id, after, err := n.attempt(ctx, key, body)
		if !errors.Is(err, errUndecided) {
			return id, err
		}
		timer := time.NewTimer(max(after, pause/2+rand.N(pause/2)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return "", err
		}
	}
}

func (n *newcomer) attempt(ctx context.Context, key, body string) (id string, after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.through+"/v1/orders", strings.NewReader(body))
	if err != nil {
		return "", 0, err
	}
	req.GetBody = nil
	for name, value := range map[string]string{"Authorization": "Bearer " + n.key, "Content-Type": "application/json", "Idempotency-Key": key} {
		req.Header.Set(name, value)
	}
	resp, err := n.http.Do(req)
	if err != nil {
		n.lost.Add(1)
		return "", 0, errUndecided
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.lost.Add(1)
		return "", 0, errUndecided
	}
	var answer struct {
		OrderID string `json:"order_id"`
		Type    string `json:"type"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return "", 0, fmt.Errorf("reading %d %q: %w", resp.StatusCode, text, err)
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // 0 without one
	after = time.Duration(seconds) * time.Second
	switch {
	case resp.StatusCode == http.StatusCreated || resp.StatusCode == http.StatusOK:
		return answer.OrderID, 0, nil
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests,
		resp.StatusCode == http.StatusConflict && strings.HasSuffix(answer.Type, "/key-in-progress"):
		return "", after, errUndecided
	}
	return "", 0, fmt.Errorf("refused: %d %s", resp.StatusCode, text)
}
