package stack

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"
)

// Options say what runs where. Start from [Defaults].
type Options struct {
	// Data keeps all state: the database, the streams, both ledgers, logs and process ids.
	Data string
	// Host is the address that everything listens on.
	Host string
	// Ports are the ports of everything; instance i of a service adds i to its own.
	Ports Ports
	// Instances is how many of each service run.
	Instances int
	// Separate runs each service as a process of its own.
	Separate bool
	// External are servers that exist already; what is empty is started here.
	External External
	// Webhooks lets the simulators tell the services of what changes there. Without them the services ask, and learn of it later.
	Webhooks bool
	// CustomerTime is how long a customer may take to confirm a payment; 0 leaves that to the payment service.
	CustomerTime time.Duration
	// Strict lets the order service refuse to start while there are unfinished orders whose saga this release does not define.
	Strict bool
	// APIKeys are clients beside those that the order service knows, as client=key with commas between; usually empty. With embedded
	// servers the development clients exist, too.
	APIKeys string
	// ClientRate and ClientBurst are how often a client may call a gateway, as the gateway's settings; empty leaves that to it.
	ClientRate, ClientBurst string
	// KeyLifetime and ClientRetries are how long stored answers are kept, and clients may repeat; empty leaves that to the order service.
	KeyLifetime, ClientRetries string
	// VerifyEvery is how long after one proof of effects the next begins; empty leaves that to the order service.
	VerifyEvery string
	// Operator is what operators show; empty makes one and keeps it in the data folder.
	Operator string
	// Console is what people show the operators' page; empty makes one and keeps it in the data folder.
	Console string
	// JaegerURL is where browsers find Jaeger, which the page links to; empty makes no links.
	JaegerURL string
	// Credential is what the services show each other; empty makes one at each start.
	Credential string
	// OTLPEndpoint is where traces go; none when empty.
	OTLPEndpoint string
	LogLevel     string
	// Environ is added to the environment of each service.
	Environ []string
	// Grace is what the services have together to finish the work in hand when they are stopped.
	Grace time.Duration
	// Progress is told what takes time, for people.
	Progress io.Writer
	Logger   *slog.Logger
}

// Ports are where everything listens.
type Ports struct {
	GatewayHTTP, GatewayGRPC   int
	OrderGRPC, OrderHTTP       int
	PaymentGRPC, PaymentHTTP   int
	ShippingGRPC, ShippingHTTP int
	// Where the payment and the shipping service take webhooks.
	PaymentWebhooks, ShippingWebhooks int
	Provider, Carrier                 int
	// Console is where the operators' page is.
	Console        int
	NATS, Postgres int
}

// External are servers that exist already.
type External struct {
	OrderDatabase, PaymentDatabase, ShippingDatabase string
	NATS                                             string
	Provider, ProviderKey                            string
	Carrier                                          string
	// ProviderWebhookSecret and CarrierWebhookSecret are what a real provider and carrier sign webhooks with; empty takes none of theirs.
	ProviderWebhookSecret, CarrierWebhookSecret string
}

// Defaults are the options of "throughline up" without flags. The bases of services are far enough apart for the instances
// that anybody would start on one machine.
func Defaults() Options {
	return Options{
		Data: ".run", Host: "127.0.0.1", Instances: 1, Webhooks: true, LogLevel: "info", Grace: 20 * time.Second,
		Ports: Ports{
			GatewayHTTP: 8080, GatewayGRPC: 9090, OrderGRPC: 9110, OrderHTTP: 8110, PaymentGRPC: 9130, PaymentHTTP: 8130,
			ShippingGRPC: 9150, ShippingHTTP: 8150, PaymentWebhooks: 8160, ShippingWebhooks: 8170, Provider: 8090, Carrier: 8091, Console: 8095, NATS: 4222, Postgres: 5433,
		},
		Progress: io.Discard, Logger: slog.New(slog.DiscardHandler),
	}
}

// maxInstances keeps the ports of one service below those of the next: the gateway's eight reach 8087, the simulators
// begin at 8090.
const maxInstances = 8

// Validate checks what no single option can.
func (o *Options) Validate() error {
	if o.Instances < 1 || o.Instances > maxInstances {
		return fmt.Errorf("%d instances of each service: it must be 1 to %d", o.Instances, maxInstances)
	}
	e := o.External
	var given, missing []string
	for name, value := range map[string]string{
		"ORDER_DATABASE_URL": e.OrderDatabase, "PAYMENT_DATABASE_URL": e.PaymentDatabase, "SHIPPING_DATABASE_URL": e.ShippingDatabase, "NATS_URL": e.NATS,
	} {
		if value == "" {
			missing = append(missing, name)
		} else {
			given = append(given, name)
		}
	}
	if len(given) > 0 && len(missing) > 0 {
		return fmt.Errorf("real servers: %s is set, but not %s; set all four, or none for the embedded ones",
			strings.Join(given, ", "), strings.Join(missing, ", "))
	}
	return nil
}

// Embedded tells whether Postgres and JetStream are started here.
func (o *Options) Embedded() bool { return o.External.NATS == "" }

func (o *Options) addr(port, instance int) string {
	return net.JoinHostPort(o.Host, strconv.Itoa(port+instance))
}

// addrs lists the addresses of all instances.
func (o *Options) addrs(port int) string {
	list := make([]string, o.Instances)
	for i := range list {
		list[i] = o.addr(port, i)
	}
	return strings.Join(list, ",")
}

// FreePorts gives ports that are free now, with room for n instances of each service.
func FreePorts(ctx context.Context, n int) (Ports, error) {
	var p Ports
	single := []*int{&p.Provider, &p.Carrier, &p.Console, &p.NATS, &p.Postgres}
	several := []*int{&p.GatewayHTTP, &p.GatewayGRPC, &p.OrderGRPC, &p.OrderHTTP, &p.PaymentGRPC, &p.PaymentHTTP, &p.ShippingGRPC, &p.ShippingHTTP, &p.PaymentWebhooks, &p.ShippingWebhooks}
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for _, at := range single {
		if err := take(ctx, at, 1, &held); err != nil {
			return p, err
		}
	}
	for _, at := range several {
		if err := take(ctx, at, n, &held); err != nil {
			return p, err
		}
	}
	return p, nil
}

// Ports are looked for below the range from which Linux and macOS take ports for outgoing connections: those can be taken at
// any moment.
const (
	firstFreePort = 20000
	lastFreePort  = 31000
)

// take finds n free ports in a row, and holds them until all are found.
func take(ctx context.Context, base *int, n int, held *[]net.Listener) error {
	const tries = 200
	var listen net.ListenConfig
	for range tries {
		at := firstFreePort + rand.IntN(lastFreePort-firstFreePort)
		var row []net.Listener
		for i := range n {
			l, err := listen.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(at+i)))
			if err != nil {
				break
			}
			row = append(row, l)
		}
		*held = append(*held, row...)
		if len(row) == n {
			*base = at
			return nil
		}
	}
	return fmt.Errorf("looking for %d free ports in a row: none found", n)
}
