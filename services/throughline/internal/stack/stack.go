package stack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/throughline/throughline/pkg/lifecycle"
	"github.com/throughline/throughline/pkg/localnet"
)

// readyTimeout bounds the start of one service, which may have to wait for a port or recover.
const readyTimeout = 2 * time.Minute

// Stack is the running system.
type Stack struct {
	options Options
	needs   needs
	local   *localnet.Network // between the services that run in this process
}

// Options are what the stack runs with.
func (s *Stack) Options() Options { return s.options }

// URL is the gateway's, of the first instance.
func (s *Stack) URL() string { return "http://" + s.options.addr(s.options.Ports.GatewayHTTP, 0) }

// ConsoleURL is that of the operators' page.
func (s *Stack) ConsoleURL() string { return "http://" + s.options.addr(s.options.Ports.Console, 0) }

// ConsoleCredential is what people show there.
func (s *Stack) ConsoleCredential() string { return s.needs.console }

// OperatorCredential is what operators show to the services.
func (s *Stack) OperatorCredential() string { return s.needs.operator }

// GRPCAddr is where the first instance of a service with a database answers operators.
func (s *Stack) GRPCAddr(service string) string {
	p := &s.options.Ports
	return s.options.addr(map[string]int{Order: p.OrderGRPC, Payment: p.PaymentGRPC, Shipping: p.ShippingGRPC}[service], 0)
}

// ProviderURL is the payment provider's.
func (s *Stack) ProviderURL() string { return s.needs.provider }

// CarrierURL is the carrier's.
func (s *Stack) CarrierURL() string { return s.needs.carrier }

// ProviderWebhookURL is where the first payment service takes the provider's webhooks.
func (s *Stack) ProviderWebhookURL() string {
	return "http://" + s.options.addr(s.options.Ports.PaymentWebhooks, 0) + "/webhooks/provider"
}

// CarrierWebhookURL is where the first shipping service takes the carrier's webhooks.
func (s *Stack) CarrierWebhookURL() string {
	return "http://" + s.options.addr(s.options.Ports.ShippingWebhooks, 0) + "/webhooks/carrier"
}

// Webhooks tells whether webhooks are taken, from the provider and from the carrier.
func (s *Stack) Webhooks() (provider, carrier bool) {
	return s.needs.providerWebhookSecret != "", s.needs.carrierWebhookSecret != ""
}

// NATSURL is the broker's.
func (s *Stack) NATSURL() string { return s.needs.nats }

// DatabaseURL is that of a service's database.
func (s *Stack) DatabaseURL(service string) string { return s.needs.databases[service] }

// Run runs the system until stop ends, then stops everything in order; work ends what is in hand then. ready is called once,
// when every service is ready.
func Run(stop, work context.Context, o Options, ready func(*Stack)) (err error) {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.Data, err = filepath.Abs(o.Data); err != nil {
		return fmt.Errorf("finding the data folder: %w", err)
	}
	if err := os.MkdirAll(o.Data, 0o755); err != nil {
		return fmt.Errorf("creating the data folder: %w", err)
	}
	unlock, err := lock(filepath.Join(o.Data, "lock"))
	if err != nil {
		return err
	}
	defer unlock()

	if err := o.checkPorts(stop); err != nil {
		return err
	}
	s := &Stack{options: o, local: localnet.New()}
	g := lifecycle.New(o.Logger.With("service", "throughline"), o.Grace+stopTimeout)
	if err := s.addPlatform(g, &s.needs); err != nil {
		return err
	}
	for _, service := range Services() {
		for i := range o.instances(service) {
			g.AddFunc(instanceName(service, i), s.service(service, i))
		}
	}
	return g.Run(stop, work, func() { ready(s) })
}

// service runs one instance, in this process or in one of its own.
func (s *Stack) service(name string, instance int) lifecycle.Func {
	return func(stop, work context.Context, ready func()) error {
		if name == Shipping && instance == 0 {
			s.say("starting the services")
		}
		run := s.inProcess
		if s.options.Separate {
			run = s.supervise
		}
		return run(stop, work, name, instance, ready)
	}
}

// awaitReady waits until an instance says that it is ready.
func (s *Stack) awaitReady(ctx context.Context, service string, instance int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("%s was not ready within %s", instanceName(service, instance), readyTimeout))
	defer cancel()
	url := "http://" + s.options.opsAddr(service, instance) + "/readyz"
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		if isReady(ctx, url) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func isReady(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (s *Stack) say(line string) { fmt.Fprintln(s.options.Progress, "  "+line) }

// errAlreadyRunning says that another stack holds the data folder.
var errAlreadyRunning = errors.New("already running")
