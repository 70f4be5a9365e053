package httpapi

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/throughline/throughline/services/internal/grpcx"
)

// Limits of the HTTP server.
const (
	// MaxHeaderBytes bounds the request line and the headers; net/http adds 4 KiB of grace. Ours are under 2 KiB, and
	// proxies add some.
	MaxHeaderBytes = 32 << 10
	// readHeaderTimeout and readTimeout bound how slowly a request may come: 256 KiB in 15 s is 17 kB/s.
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second
	// idleTimeout is longer than the 60 s that proxies usually keep connections, so that it is they who close them: a
	// request on a connection that the server is just closing is lost.
	idleTimeout = 90 * time.Second
	// writeMargin is what a caller has to take its answer in, once there is one.
	writeMargin = 15 * time.Second
)

// NewServer makes the HTTP server around a handler whose longest call takes callTimeout. It must be served on a
// ProblemListener.
func NewServer(h http.Handler, callTimeout time.Duration) *http.Server {
	return &http.Server{
		Handler:                      h,
		MaxHeaderBytes:               MaxHeaderBytes,
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 readTimeout + callTimeout + writeMargin, // it runs from the end of the headers
		IdleTimeout:                  idleTimeout,
		DisableGeneralOptionsHandler: true, // "OPTIONS *" is answered as every other path that is not served
	}
}

// ProblemListener answers a listener whose connections turn the answers that net/http writes by itself into problem
// documents. net/http refuses some requests before any handler runs, and writes these answers straight to the
// connection, as text: headers that are too large (431), a request line or a header that cannot be read, a malformed
// escape in the path, a missing or repeated Host (400), a transfer encoding that it does not know (501), a version of
// HTTP that it does not speak (505); and, without a body, an expectation that it does not know (417). There is no hook for it.
//
// Each is one Write of a whole small answer. It is told from everything else by its line ends: no answer of ours has a raw
// CR LF after such a status line, since JSON has none in its strings. So a caller cannot make a part of a body look like it.
func ProblemListener(l net.Listener) net.Listener { return problemListener{l} }

type problemListener struct{ net.Listener }

func (l problemListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		return &problemTCPConn{TCPConn: tcp}, nil
	}
	return &problemConn{Conn: c}, nil
}

// problemTCPConn keeps the methods of a TCP connection: net/http closes only the sending side after a 431, so that its
// answer is not lost to a reset.
type problemTCPConn struct{ *net.TCPConn }

func (c *problemTCPConn) Write(b []byte) (int, error) { return writeProblem(c.TCPConn, b) }

type problemConn struct{ net.Conn }

func (c *problemConn) Write(b []byte) (int, error) { return writeProblem(c.Conn, b) }

// ownHeaders is what net/http puts between the status line and the text of the answers that it writes by itself.
var ownHeaders = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

func writeProblem(c net.Conn, b []byte) (int, error) {
	own, code := ownAnswer(b)
	if !own {
		return c.Write(b)
	}
	if _, err := c.Write(rawProblem(code)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// ownAnswer recognises an answer that net/http wrote by itself. All others leave after a look at twelve bytes.
func ownAnswer(b []byte) (own bool, code int) {
	const line = "HTTP/1.1 "
	if len(b) < len(line)+3 || string(b[:len(line)]) != line || (b[len(line)] != '4' && b[len(line)] != '5') {
		return false, 0
	}
	code, err := strconv.Atoi(string(b[len(line) : len(line)+3]))
	if err != nil {
		return false, 0
	}
	end := bytes.Index(b, []byte("\r\n"))
	if end < 0 {
		return false, 0
	}
	return code == http.StatusExpectationFailed || bytes.HasPrefix(b[end:], ownHeaders), code
}

func rawProblem(code int) []byte {
	p := Problem{Type: "about:blank", Title: http.StatusText(code), Status: code, Detail: "the request cannot be served"}
	switch code {
	case http.StatusBadRequest:
		p = newProblem(grpcx.RequestMalformed, "the request line or a header is malformed")
	case http.StatusRequestHeaderFieldsTooLarge:
		p = newProblem(grpcx.HeadersTooLarge, "the headers may have "+strconv.Itoa(MaxHeaderBytes)+" bytes")
	case http.StatusNotImplemented:
		p = newProblem(grpcx.NotImplemented, "the transfer encoding is not known")
	}
	body := p.encode()
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 " + strconv.Itoa(code) + " " + http.StatusText(code) + "\r\n")
	b.WriteString("Content-Type: " + problemType + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n")
	b.WriteString("Cache-Control: no-store\r\nConnection: close\r\n\r\n")
	b.Write(body)
	return b.Bytes()
}
