package stack

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/throughline/throughline/pkg/config"
	"github.com/throughline/throughline/services/console"
	"github.com/throughline/throughline/services/gateway"
	"github.com/throughline/throughline/services/order"
	"github.com/throughline/throughline/services/payment"
	"github.com/throughline/throughline/services/shipping"
)

// inProcess runs one instance in this process. It reads its settings from the same environment as one in a process of its own.
func (s *Stack) inProcess(stop, work context.Context, service string, instance int, ready func()) error {
	environ := s.options.environ(s.needs, service, instance)
	logger := s.options.Logger.With("service", service, "instance", instanceName(service, instance))
	watching, cancel := context.WithCancel(stop)
	defer cancel()
	go func() {
		if s.awaitReady(watching, service, instance) == nil {
			ready()
		}
	}()
	var err error
	switch service {
	case Gateway:
		err = runWith(environ, func(cfg gateway.Config) error {
			return gateway.RunWith(stop, cfg, gateway.Options{Logger: logger, Work: work, Local: s.local})
		})
	case Order:
		err = runWith(environ, func(cfg order.Config) error {
			return order.RunWith(stop, cfg, s.shared(logger, work))
		})
	case Payment:
		err = runWith(environ, func(cfg payment.Config) error {
			return payment.RunWith(stop, cfg, s.shared(logger, work))
		})
	case Shipping:
		err = runWith(environ, func(cfg shipping.Config) error {
			return shipping.RunWith(stop, cfg, s.shared(logger, work))
		})
	case Console:
		err = runWith(environ, func(cfg console.Config) error {
			return console.RunWith(stop, cfg, console.Options{Logger: logger, Work: work})
		})
	default:
		return fmt.Errorf("there is no service %q", service)
	}
	if err != nil {
		return fmt.Errorf("running %s: %w", instanceName(service, instance), err)
	}
	return nil
}

// shared is what the services with a database have from this process.
func (s *Stack) shared(logger *slog.Logger, work context.Context) order.Options {
	return order.Options{Logger: logger, Work: work, Broker: s.needs.broker, Local: s.local, ServerGate: s.needs.gate}
}

func runWith[T any](environ []string, run func(T) error) error {
	cfg, err := config.Load[T](config.Prefix, environ)
	if err != nil {
		return err
	}
	return run(cfg)
}
