package web

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/topology"
)

const (
	// maxStreams bounds the browsers that follow at one time; each costs a rendering at each change.
	maxStreams = 64
	// pace is how often the list is sent at most: faster nobody can read.
	pace = 500 * time.Millisecond
	// settle is how often the list is looked at when nothing happens: an order changes without an event when a person decides about it.
	settle = 5 * time.Second
	// streamWrite bounds the sending of one change; a browser that takes longer is gone, and comes again.
	streamWrite = 5 * time.Second
)

// now is what the first page shows.
type now struct {
	Vitals vitals
	Orders []*orderv1.BookEntry
	// Problem says why the list is old or empty.
	Problem string
}

func (s *Server) showNow(w http.ResponseWriter, r *http.Request, v visit) {
	body := now{Vitals: measureVitals(s.cfg.Board, s.cfg.Sampler.Vitals())}
	var err error
	if body.Orders, err = s.cfg.List.Latest(r.Context()); err != nil {
		_, _, body.Problem = explain(topology.Order, err)
	}
	s.show(w, r, v, "now", "now", "Now", body)
}

// streamNow sends the parts of the first page whenever they change, as server-sent events: "orders" and "vitals". It ends with the
// session, and when the console stops.
func (s *Server) streamNow(w http.ResponseWriter, r *http.Request, v visit) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, "too many browsers follow", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not collect what is live
	control := http.NewResponseController(w)
	// The time to read a request in would end the stream, too.
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		s.cfg.Logger.WarnContext(r.Context(), "stream not opened", "error", err)
		return
	}
	st := &stream{w: w, control: control, sent: make(map[string]string)}
	tick := time.NewTicker(settle)
	defer tick.Stop()
	for {
		// Fetched before the reading, so that no turn between the two is missed.
		board, sampled := s.cfg.Board.Turned(), s.cfg.Sampler.Turned()
		if err := s.sendNow(r.Context(), st); err != nil {
			return // the browser went away
		}
		if !s.await(r.Context(), v, board, sampled, tick.C) {
			return
		}
	}
}

// await waits until there may be something to send; false ends the stream.
func (s *Server) await(ctx context.Context, v visit, board, sampled <-chan struct{}, tick <-chan time.Time) bool {
	select {
	case <-board:
	case <-sampled:
	case <-tick:
	case <-s.draining:
		return false
	case <-ctx.Done():
		return false
	}
	pause := time.NewTimer(pace)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-s.draining:
		return false
	case <-ctx.Done():
		return false
	}
	return v.basic || s.cfg.Sessions.Lives(v.session)
}

func (s *Server) sendNow(ctx context.Context, st *stream) error {
	figures, err := s.pages.part("vitals", measureVitals(s.cfg.Board, s.cfg.Sampler.Vitals()))
	if err != nil {
		return err
	}
	if err := st.send("vitals", figures); err != nil {
		return err
	}
	orders, err := s.cfg.List.Latest(ctx)
	if err != nil {
		return nil //nolint:nilerr // the vitals tell which service does not answer; the list stays as it is
	}
	rows, err := s.pages.part("orders", orders)
	if err != nil {
		return err
	}
	return st.send("orders", rows)
}

// stream writes server-sent events.
type stream struct {
	w       io.Writer
	control *http.ResponseController
	sent    map[string]string // what the browser has, by event
}

// lines makes each line of a text a line of an event's data. A lone CR would end a line, too.
var lines = strings.NewReplacer("\r\n", "\ndata: ", "\r", "\ndata: ", "\n", "\ndata: ")

// send sends an event whose data has changed, and else a comment, which finds out a browser that is gone.
func (s *stream) send(event, data string) error {
	text := ":\n\n"
	if s.sent[event] != data {
		text = "event: " + event + "\ndata: " + lines.Replace(data) + "\n\n"
		s.sent[event] = data
	}
	if err := s.control.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil {
		return fmt.Errorf("sending %s: %w", event, err)
	}
	if _, err := io.WriteString(s.w, text); err != nil {
		return fmt.Errorf("sending %s: %w", event, err)
	}
	return s.control.Flush()
}
