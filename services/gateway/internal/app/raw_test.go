package app_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/services/internal/grpcx"
)

// raw sends bytes as they are, and answers what comes back first.
func (e *edge) raw(request string) answer {
	e.t.Helper()
	c := e.connect()
	go func() { _, _ = io.WriteString(c, request) }() // it may be refused before all of it is sent
	return e.read(c)
}

// rawHalf sends bytes and nothing more, ever.
func (e *edge) rawHalf(request string) answer {
	e.t.Helper()
	c := e.connect()
	if _, err := io.WriteString(c, request); err != nil {
		e.t.Fatalf("sending: %v", err)
	}
	if err := c.CloseWrite(); err != nil {
		e.t.Fatalf("closing: %v", err)
	}
	return e.read(c)
}

func (e *edge) connect() *net.TCPConn {
	e.t.Helper()
	var d net.Dialer
	c, err := d.DialContext(e.t.Context(), "tcp", e.app.HTTPAddr())
	if err != nil {
		e.t.Fatalf("connecting: %v", err)
	}
	e.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		e.t.Fatalf("setting a deadline: %v", err)
	}
	return c.(*net.TCPConn)
}

func (e *edge) read(c net.Conn) answer {
	e.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		e.t.Fatalf("reading the answer: %v", err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatalf("reading the body of the answer: %v", err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// What net/http refuses by itself is a problem document too. A release of Go that writes it in another way fails here.
func TestRefusedBeforeTheHandler(t *testing.T) {
	t.Parallel()
	e := start(t)
	const host = "Host: x\r\n"
	filler := strings.Repeat("X-Filler: "+strings.Repeat("x", 990)+"\r\n", 900) // 900 KiB
	tests := []struct {
		name, request string
		status        int
		reason        grpcx.Reason
	}{
		{"malformed escape in the path", "GET /v1/orders/%zz HTTP/1.1\r\n" + host + "\r\n", 400, grpcx.RequestMalformed},
		{"not HTTP", "hello\r\n\r\n", 400, grpcx.RequestMalformed},
		{"no host", "GET /healthz HTTP/1.1\r\n\r\n", 400, grpcx.RequestMalformed},
		{"two hosts", "GET /healthz HTTP/1.1\r\n" + host + host + "\r\n", 400, grpcx.RequestMalformed},
		{"malformed header", "GET /healthz HTTP/1.1\r\n" + host + "A B: c\r\n\r\n", 400, grpcx.RequestMalformed},
		{"NUL in a header", "POST /v1/orders HTTP/1.1\r\n" + host + "Idempotency-Key: a\x00b\r\n\r\n", 400, grpcx.RequestMalformed},
		{"two lengths", "POST /v1/orders HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400, grpcx.RequestMalformed},
		{"unknown transfer encoding", "POST /v1/orders HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", 501, grpcx.NotImplemented},
		{"another version", "GET /healthz HTTP/3.1\r\n" + host + "\r\n", 505, ""},
		{"unknown expectation", "POST /v1/orders HTTP/1.1\r\n" + host + "Expect: tea\r\n\r\n", 417, ""},
		{"900 KiB of headers", "POST /v1/orders HTTP/1.1\r\n" + host + filler + "\r\n", 431, grpcx.HeadersTooLarge},
		{"a path of 60 KiB", "GET /" + strings.Repeat("x", 60<<10) + " HTTP/1.1\r\n" + host + "\r\n", 431, grpcx.HeadersTooLarge},
		{"a star", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n", 404, grpcx.RouteNotFound},
		{"a tunnel", "CONNECT example.com:443 HTTP/1.1\r\n" + host + "\r\n", 404, grpcx.RouteNotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := *e
			e.t = t
			a := e.raw(tt.request)
			if p := e.checkProblem(a); a.status != tt.status || p.Reason != string(tt.reason) {
				t.Errorf("got %d %q, want %d %q", a.status, p.Reason, tt.status, tt.reason)
			}
		})
	}
	if n := len(e.seen()); n != 0 {
		t.Errorf("got %d calls to the order service, want none", n)
	}
}

// A caller cannot make a part of an answer look like one of net/http's own.
func TestAnswersAreNotRewritten(t *testing.T) {
	t.Parallel()
	e := start(t)
	note := strings.Repeat("HTTP/1.1 417 Expectation Failed\\r\\n", 6000)
	first := e.create("split", strings.Replace(r0, `"note":""`, `"note":"`+note+`"`, 1))
	e.created(first, false)
	if strings.Count(first.body, "HTTP/1.1 417 Expectation Failed") != 6000 {
		t.Errorf("the note came back changed")
	}
}

// A body that ends early leaves nothing behind, whoever ends it.
func TestHalfABody(t *testing.T) {
	t.Parallel()
	e := start(t)
	head := fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: half\r\n"+
		"Content-Type: application/json\r\n", storefrontKey)
	e.refused(e.raw(head+"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), grpcx.RequestMalformed)
	e.refused(e.rawHalf(fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(r0)+10, r0)), grpcx.RequestMalformed)
	if n := len(e.seen()); n != 0 {
		t.Errorf("got %d calls to the order service, want none", n)
	}
	e.created(e.create("half", r0), false)
}
