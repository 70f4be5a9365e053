// Package operator holds the connections over which the console asks the services, as an operator.
package operator

import (
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/throughline/throughline/pkg/telemetry"
	attentionv1 "github.com/throughline/throughline/proto/gen/throughline/attention/v1"
	deadletterv1 "github.com/throughline/throughline/proto/gen/throughline/deadletter/v1"
	doctorv1 "github.com/throughline/throughline/proto/gen/throughline/doctor/v1"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/internal/trail"
)

// Names are the services that are asked, in the order in which an order passes them.
func Names() []string { return []string{topology.Order, topology.Payment, topology.Shipping} }

// Services are the services, to an operator.
type Services struct {
	Attention   attentionv1.AttentionServiceClient
	Book        orderv1.OrderBookServiceClient
	DeadLetters map[string]deadletterv1.DeadLetterServiceClient
	Doctors     map[string]doctorv1.DoctorServiceClient
	Conns       map[string]*grpc.ClientConn
}

// Dial connects to the services, by name, without waiting for them.
func Dial(addrs map[string]string, credential string, tel *telemetry.Telemetry) (*Services, error) {
	s := &Services{
		DeadLetters: make(map[string]deadletterv1.DeadLetterServiceClient), Doctors: make(map[string]doctorv1.DoctorServiceClient),
		Conns: make(map[string]*grpc.ClientConn),
	}
	for name, addr := range addrs {
		conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: addr, Credential: credential, Telemetry: tel})
		if err != nil {
			return nil, fmt.Errorf("connecting to %s: %w", name, errors.Join(err, s.Close()))
		}
		s.Conns[name] = conn
		s.DeadLetters[name] = deadletterv1.NewDeadLetterServiceClient(conn)
		s.Doctors[name] = doctorv1.NewDoctorServiceClient(conn)
	}
	s.Attention = attentionv1.NewAttentionServiceClient(s.Conns[topology.Order])
	s.Book = orderv1.NewOrderBookServiceClient(s.Conns[topology.Order])
	return s, nil
}

// Trail tells the stories of orders.
func (s *Services) Trail() *trail.Assembler {
	a := &trail.Assembler{}
	for _, name := range Names() {
		a.Sources = append(a.Sources, trail.Source{Service: name, Client: trailv1.NewTrailServiceClient(s.Conns[name])})
	}
	return a
}

// Close ends the connections.
func (s *Services) Close() error {
	var errs []error
	for _, conn := range s.Conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
