package live

import (
	"context"
	"sync"
	"time"

	doctorv1 "github.com/throughline/throughline/proto/gen/throughline/doctor/v1"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
)

const (
	// interval is how often the services are asked, samples how many answers are kept: ten minutes.
	interval = 2 * time.Second
	samples  = 300
	// askTimeout bounds one question. A service that is slower is shown as one that does not answer.
	askTimeout = 1500 * time.Millisecond
)

// Vitals are what all services said at one moment.
type Vitals struct {
	At       time.Time
	Services map[string]Examined
	// Unfinished is nil if the order service did not answer.
	Unfinished *orderv1.CountUnfinishedResponse
}

// Examined is what one service said, or why it did not.
type Examined struct {
	*doctorv1.ExamineResponse
	Err error
}

// Waiting is how many messages have not been dealt with: those that wait at the broker and those in hand.
func (e Examined) Waiting() (n int64) {
	for _, c := range e.GetConsumers() {
		n += int64(c.GetPending()) + c.GetUnacknowledged() //nolint:gosec // no stream has 2^63 messages
	}
	return n
}

// Lag is how long the oldest message that was not dealt with has waited.
func (e Examined) Lag() (lag time.Duration) {
	for _, c := range e.GetConsumers() {
		lag = max(lag, c.GetLag().AsDuration())
	}
	return lag
}

// Sampler asks the services every two seconds and keeps what they said for ten minutes.
type Sampler struct {
	doctors map[string]doctorv1.DoctorServiceClient
	book    orderv1.OrderBookServiceClient

	mu     sync.Mutex
	kept   []Vitals // the newest last
	turned chan struct{}
}

// NewSampler makes a Sampler of these services.
func NewSampler(doctors map[string]doctorv1.DoctorServiceClient, book orderv1.OrderBookServiceClient) *Sampler {
	return &Sampler{doctors: doctors, book: book, turned: make(chan struct{})}
}

// Run asks until stop ends.
func (s *Sampler) Run(stop context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		s.keep(s.ask(stop))
		select {
		case <-tick.C:
		case <-stop.Done():
			return nil
		}
	}
}

func (s *Sampler) ask(ctx context.Context) Vitals {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	v := Vitals{At: time.Now(), Services: make(map[string]Examined, len(s.doctors))}
	var (
		asked sync.WaitGroup
		mu    sync.Mutex
	)
	for name, doctor := range s.doctors {
		asked.Go(func() {
			resp, err := doctor.Examine(ctx, &doctorv1.ExamineRequest{WithoutTables: true})
			mu.Lock()
			defer mu.Unlock()
			v.Services[name] = Examined{resp, err}
		})
	}
	asked.Go(func() {
		resp, err := s.book.CountUnfinished(ctx, &orderv1.CountUnfinishedRequest{})
		if err == nil { // the reason is with the service
			v.Unfinished = resp
		}
	})
	asked.Wait()
	return v
}

func (s *Sampler) keep(v Vitals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, v)
	if len(s.kept) > 2*samples {
		s.kept = append(s.kept[:0], s.kept[len(s.kept)-samples:]...)
	}
	close(s.turned)
	s.turned = make(chan struct{})
}

// Turned gives a channel that is closed at the next sample.
func (s *Sampler) Turned() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turned
}

// Vitals gives what was said during the last ten minutes, the oldest first.
func (s *Sampler) Vitals() []Vitals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Vitals(nil), s.kept[max(0, len(s.kept)-samples):]...)
}
