package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"sync"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/jsonpb"
	"github.com/throughline/throughline/services/throughline/internal/stack"
)

// operator calls services with the operator credential.
type operator struct {
	environ map[string]string
	data    string
	addrs   map[string]*string // by service
	json    bool
}

// withDatabase lists the services that have a database, and so an outbox and an inbox.
func withDatabase() []string { return []string{stack.Order, stack.Payment, stack.Shipping} }

// flags adds what every command of an operator understands. The services are those that it calls; none means all that have a database.
func (o *operator) flags(cmd *cobra.Command, services ...string) {
	if len(services) == 0 {
		services = withDatabase()
	}
	f := cmd.PersistentFlags()
	f.StringVar(&o.data, "data", stack.Defaults().Data, "data folder of the system on this machine")
	mustBe(f, "data")
	f.BoolVar(&o.json, "json", false, "print JSON, one object a line")
	o.addrs = make(map[string]*string)
	for _, service := range services {
		o.addrs[service] = f.String(service, "", fmt.Sprintf("the %s service's gRPC address (default %s, or %s)", service, addrVariable(service), defaultAddr(service)))
	}
}

func addrVariable(service string) string {
	return map[string]string{
		stack.Order: "THROUGHLINE_ORDER_ADDR", stack.Payment: "THROUGHLINE_PAYMENT_ADDR", stack.Shipping: "THROUGHLINE_SHIPPING_ADDR",
	}[service]
}

func defaultAddr(service string) string {
	p := stack.Defaults().Ports
	port := map[string]int{stack.Order: p.OrderGRPC, stack.Payment: p.PaymentGRPC, stack.Shipping: p.ShippingGRPC}[service]
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func (o *operator) addr(service string) string {
	return firstOf(*o.addrs[service], o.environ[addrVariable(service)], defaultAddr(service))
}

// call is what is asked of one service.
type call func(ctx context.Context, service string, conn *grpc.ClientConn) error

// each calls the named services one after another, or all of them. What goes wrong at one does not spare the others.
func (o *operator) each(ctx context.Context, services []string, ask call) error {
	return o.run(ctx, services, ask, func(calls []func() error) []error {
		errs := make([]error, len(calls))
		for i, c := range calls {
			errs[i] = c()
		}
		return errs
	})
}

// atOnce is each, side by side: ask must be safe for that.
func (o *operator) atOnce(ctx context.Context, services []string, ask call) error {
	return o.run(ctx, services, ask, func(calls []func() error) []error {
		errs := make([]error, len(calls))
		var all sync.WaitGroup
		for i, c := range calls {
			all.Go(func() { errs[i] = c() })
		}
		all.Wait()
		return errs
	})
}

func (o *operator) credential() (string, error) {
	credential := o.environ["THROUGHLINE_OPERATOR_CREDENTIAL"]
	if credential == "" {
		var err error
		if credential, err = stack.OperatorCredential(o.data); err != nil {
			return "", err
		}
	}
	if credential == "" {
		return "", errors.New("there is no operator credential: set THROUGHLINE_OPERATOR_CREDENTIAL, or --data to the folder of a running system")
	}
	return credential, nil
}

// run makes a call for each service, and lets a strategy make them.
func (o *operator) run(ctx context.Context, services []string, ask call, strategy func(calls []func() error) []error) error {
	credential, err := o.credential()
	if err != nil {
		return err
	}
	if len(services) == 0 {
		services = withDatabase()
	}
	calls := make([]func() error, len(services))
	for i, service := range services {
		calls[i] = func() error { return o.callOne(ctx, credential, service, ask) }
	}
	return allOf(strategy(calls))
}

// allOf joins what went wrong at services. Its code is that of a definite answer if there is one, or else says that the rest is true, if there
// is a rest.
func allOf(errs []error) error {
	silent, answered := false, false
	for _, err := range errs {
		_, definite := errors.AsType[coded](err)
		switch {
		case err == nil:
			answered = true
		case definite:
			return errors.Join(errs...)
		case status.Code(err) != codes.Unknown: // which is what errors have that no service sent
			silent = true
		}
	}
	err := errors.Join(errs...)
	if silent && answered {
		return coded{err, ExitIncomplete}
	}
	return err
}

func (o *operator) callOne(ctx context.Context, credential, service string, ask call) error {
	if o.addrs[service] == nil {
		return fmt.Errorf("there is no service %q; there are %v", service, withDatabase())
	}
	addr := o.addr(service)
	conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: addr, Credential: credential})
	if err != nil {
		return err
	}
	defer conn.Close() // nothing is open on it any more
	if err := ask(grpcx.Outgoing(ctx, grpcx.Entries{}), service, conn); err != nil {
		return fmt.Errorf("%s: %w", service, explainCall(addr, err))
	}
	return nil
}

// explainCall tells an operator what a service said, with the code that the program ends with if it is definite.
func explainCall(addr string, err error) error {
	told := fmt.Errorf("calling the service at %s: %w", addr, err)
	for _, v := range grpcx.Violations(err) {
		told = fmt.Errorf("%s %s", v.Path, v.Detail)
		break
	}
	if code := codeOf(err); code != 0 {
		return coded{told, code}
	}
	return told
}

// said is a line of JSON: what a service said, and to which question if a command asks several.
type said struct {
	Service    string          `json:"service"`
	DeadLetter int64           `json:"dead_letter,omitempty"`
	APIKey     string          `json:"api_key,omitempty"`
	Answer     json.RawMessage `json:"answer"`
}

// print prints a message as JSON, with the service that said it.
func (o *operator) print(w io.Writer, service string, m proto.Message) error {
	return printSaid(w, said{Service: service}, m)
}

func printSaid(w io.Writer, s said, m proto.Message) error {
	var err error
	if s.Answer, err = jsonpb.Marshal(m); err != nil {
		return err
	}
	return printJSON(w, s)
}

// whoAmI is who an action is noted for, unless it is said.
func whoAmI() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
