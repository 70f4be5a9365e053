package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
)

// Clients reset their connections at any moment, while the provider takes three seconds for each order, and one in the middle of a body. Every
// retry has an answer within the recovery time, and every order is charged once.
func TestOPEN08ClientHangsUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{})
	ctx := system.Context(t, patience)
	if _, err := w.Provider.AddFault(ctx, control.Fault{Operation: "payment_intents.confirm", Action: control.Delay, DelayMS: 3000}); err != nil {
		t.Fatal(err)
	}
	const runs = 100
	moments := seed(t)
	var wg sync.WaitGroup
	for i := range runs {
		// At the moments of the report, and for the most part while the request is on its way through.
		after := []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond}[i%4]
		if i >= 20 {
			after = time.Duration(moments.Int64N(int64(20 * time.Millisecond)))
		}
		wg.Go(func() {
			key := fmt.Sprintf("open08 %d", i)
			hangUp(t, w.shop, key, r0(), after)
			a := w.eventually(ctx, t, key, r0())
			if want := keys.OrderID("storefront", key).String(); a.Order.ID != want {
				t.Errorf("run %d: got order %s, want %s", i, a.Order.ID, want)
			}
		})
	}
	wg.Wait()
	half := halfBody(t, w.shop, "open08 half", r0())
	if !bytes.HasPrefix(half, []byte("HTTP/1.1 400")) {
		t.Errorf("half a body: got %q, want 400", half)
	}
	if n := w.count("order", `SELECT count(*) FROM customer_order WHERE idempotency_key = 'open08 half'`); n != 0 {
		t.Errorf("half a body: got %d orders, want none", n)
	}
	wantCreated(t, "after half a body", w.place(ctx, t, r0(), "Idempotency-Key", "open08 half"), false)
	if n := w.settled(ctx, t); n != runs+1 {
		t.Errorf("got %d orders, want %d", n, runs+1)
	}
}

// hangUp sends a request and resets the connection after a time, whether an answer has come or not.
func hangUp(t *testing.T, c *system.Client, key, body string, after time.Duration) {
	t.Helper()
	conn := sendRaw(t, c, key, len(body), body)
	if conn == nil {
		return
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	<-timer.C
	if err := conn.SetLinger(0); err != nil {
		t.Error(err)
	}
	_ = conn.Close()
}

// sendRaw sends the head of a create that announces a body of some length, and what there is of the body.
func sendRaw(t *testing.T, c *system.Client, key string, length int, body string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.URLs[0], "http://"))
	if err != nil {
		t.Error(err)
		return nil
	}
	if _, err := fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s",
		c.Key, key, length, body); err != nil {
		t.Error(err)
	}
	return conn.(*net.TCPConn)
}

// halfBody announces a whole body and sends half of it, and gives what comes back.
func halfBody(t *testing.T, c *system.Client, key, body string) []byte {
	t.Helper()
	conn := sendRaw(t, c, key, len(body), body[:len(body)/2])
	if conn == nil {
		return nil
	}
	defer conn.Close()
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
