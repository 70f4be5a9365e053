// Package webhook delivers a simulator's signed notices.
//
// Delivery is at least once and in no order: each event is sent on its own,
// and again with a growing pause until the receiver answers 2xx, at most
// Attempts times. Events that wait when the simulator stops are lost, as are
// those beyond MaxWaiting; the real senders promise no more than "usually, and
// perhaps twice", so a receiver has to live with it.
package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	// Attempts is how often an event is sent at most: with the pauses of
	// 0.2, 0.4, … 25.6 s that is for about 51 s.
	Attempts   = 9
	firstPause = 200 * time.Millisecond

	// MaxWaiting bounds the events not yet delivered.
	MaxWaiting = 10_000

	// parallel bounds deliveries under way at once.
	parallel = 16

	// remembered bounds the events kept for being repeated on request.
	remembered = 10_000

	timeout = 5 * time.Second
)

// ErrOff is returned when no URL is configured.
var ErrOff = errors.New("no webhook URL is configured")

// ErrFull is returned when MaxWaiting events wait already.
var ErrFull = errors.New("too many webhooks are waiting")

// An Event is one notice. Payload is what is signed and sent, byte for byte.
type Event struct {
	ID      string
	Type    string
	OrderID string
	Payload []byte
}

// Options of one request to Send.
type Options struct {
	Times        int // copies; 0 means 1
	Delay        time.Duration
	BadSignature bool
}

// Signer returns the headers that sign payload at the given time. It is called for every
// attempt, as a real sender signs each with the time it is made.
type Signer func(e Event, secret string, at time.Time) http.Header

// A Sender delivers to one URL.
type Sender struct {
	url, secret string
	sign        Signer
	log         *slog.Logger
	client      *http.Client

	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{}

	mu      sync.Mutex
	waiting int
	closed  bool
	sent    []Event // the newest last
}

// NewSender returns a Sender; with url "" it is off. Close must be called.
func NewSender(url, secret string, sign Signer, log *slog.Logger) *Sender {
	ctx, cancel := context.WithCancel(context.Background())
	return &Sender{
		url: url, secret: secret, sign: sign, log: log,
		client: &http.Client{Timeout: timeout},
		ctx:    ctx, cancel: cancel, slots: make(chan struct{}, parallel),
	}
}

// On reports whether there is anybody to send to.
func (s *Sender) On() bool { return s.url != "" }

// Send queues e and returns at once.
func (s *Sender) Send(e Event, o Options) error {
	if !s.On() {
		return ErrOff
	}
	copies := max(o.Times, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.waiting+copies > MaxWaiting {
		return ErrFull
	}
	if len(s.sent) >= 2*remembered {
		s.sent = append([]Event(nil), s.sent[len(s.sent)-remembered:]...)
	}
	s.sent = append(s.sent, e)
	s.waiting += copies
	for range copies {
		s.wg.Go(func() { s.deliver(e, o) })
	}
	return nil
}

// Last returns the newest event of that type about that order.
func (s *Sender) Last(eventType, orderID string) (Event, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.sent) - 1; i >= 0; i-- {
		if s.sent[i].Type == eventType && s.sent[i].OrderID == orderID {
			return s.sent[i], true
		}
	}
	return Event{}, false
}

func (s *Sender) deliver(e Event, o Options) {
	defer func() {
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
	}()
	if !s.sleep(o.Delay) {
		return
	}
	secret := s.secret
	if o.BadSignature {
		secret += "-forged"
	}
	pause := firstPause
	for attempt := 1; ; attempt++ {
		err := s.attempt(e, secret)
		if err == nil || s.ctx.Err() != nil {
			return
		}
		// A forged event is meant to be refused: once is enough.
		if attempt == Attempts || o.BadSignature {
			s.log.Warn("webhook not delivered", "event_id", e.ID, "type", e.Type, "attempts", attempt, "error", err)
			return
		}
		if !s.sleep(pause) {
			return
		}
		pause *= 2
	}
}

func (s *Sender) attempt(e Event, secret string) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.url, bytes.NewReader(e.Payload))
	if err != nil {
		return fmt.Errorf("building webhook request: %w", err)
	}
	req.Header = s.sign(e, secret, time.Now())
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("sending webhook: %w", err)
	}
	// The body is read so that the connection can be used again.
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	err = errors.Join(err, resp.Body.Close())
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("receiver answered %s", resp.Status)
	}
	return err
}

func (s *Sender) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// Close ends all deliveries and waits for them. It may be called twice.
func (s *Sender) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}
