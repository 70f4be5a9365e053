package service

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// brokerPatience is how long the start-up waits for the broker before the service takes calls without it. A broker that is
// started together with the services is there within a second.
const brokerPatience = 3 * time.Second

// tracer is nil where spans go nowhere, so that messages pass their own trace context on unchanged.
func (s *server) tracer() trace.Tracer {
	if !s.tel.Exporting() {
		return nil
	}
	return s.tel.Tracer(tracerName)
}

// streams keeps the streams there: a broker that comes back may have lost them, and somebody may delete one.
type streams struct {
	conn *messaging.Conn
	log  *slog.Logger
	want []messaging.Stream

	mu  sync.Mutex
	err error // why they are not known to be there; written by run, read by probes
}

func (s *streams) run(stop, _ context.Context, ready func()) error {
	s.set(errStarting)
	patience := time.AfterFunc(brokerPatience, ready)
	defer patience.Stop()
	wait := retryFirst
	var ensured uint64 // the session in which they were
	for stop.Err() == nil {
		if err := s.conn.WaitConnected(stop); err != nil {
			break
		}
		session := s.conn.Session()
		err := s.conn.EnsureStreams(stop, s.want...)
		s.set(err)
		if err != nil {
			if stop.Err() == nil {
				s.log.WarnContext(stop, "streams not ensured, trying again", "error", err, "in", wait)
			}
			pause(stop, wait)
			wait = min(2*wait, retryMax)
			continue
		}
		wait = retryFirst
		ready()
		if ensured == session.Number {
			// Somebody had deleted a stream, so what was acknowledged is gone, as after a disconnect. It is dealt with like one: all
			// that is pending is published again.
			s.log.WarnContext(stop, "a stream was missing and is made again")
			s.conn.Renew()
		}
		ensured = session.Number
		select { // what was said of the time before they were made
		case <-s.conn.Missing():
		default:
		}
		select {
		case <-session.Changed:
		case <-s.conn.Missing():
		case <-stop.Done():
		}
	}
	return nil
}

func (s *streams) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *streams) check(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func serveGRPC(api *grpcx.Server, l net.Listener, stop, work context.Context, ready func()) error {
	served := make(chan error, 1)
	go func() { served <- api.Serve(l) }()
	ready()
	select {
	case err := <-served:
		return fmt.Errorf("serving gRPC: %w", err)
	case <-stop.Done():
	}
	api.Drain(work.Done())
	<-served // how it ended after it was told to
	return nil
}
