package command

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/throughline/throughline/services/throughline/internal/stack"
)

// teller says how far the system is: for people, or as JSON.
type teller struct {
	out, progress io.Writer
	json          bool
}

func (t teller) starting() {
	if t.json {
		_ = printJSON(t.out, event{Event: "starting"}) // whoever does not read on does not stop the system
		return
	}
	fmt.Fprintln(t.out, "throughline is starting; Ctrl-C stops it")
}

func (t teller) up(s *stack.Stack, log string) {
	if t.json {
		_ = printJSON(t.out, describeUp(s, log))
		return
	}
	fmt.Fprint(t.out, banner(s, log))
}

func (t teller) stopped() error {
	if t.json {
		return printJSON(t.out, event{Event: "stopped"})
	}
	_, err := fmt.Fprintln(t.out, "throughline has stopped; the next start continues with the same data")
	return err
}

// event is a line of JSON of a system that runs.
type event struct {
	Event string `json:"event"`
}

// place is where a service answers, instance by instance.
type place struct {
	HTTP []string `json:"http"`
	GRPC []string `json:"grpc"`
}

// running is the banner for programs.
type running struct {
	event

	Embedded bool             `json:"embedded"`
	Services map[string]place `json:"services"`
	Console  struct {
		URL        string `json:"url"`
		Credential string `json:"credential"`
	} `json:"console"`
	ProviderURL string `json:"provider_url"`
	CarrierURL  string `json:"carrier_url"`
	// The addresses for webhooks; empty where none are taken.
	ProviderWebhookURL string `json:"provider_webhook_url"`
	CarrierWebhookURL  string `json:"carrier_webhook_url"`
	NATSURL            string `json:"nats_url"`
	Data               string `json:"data"`
	Log                string `json:"log"`
	// Clients are those for development, by their id, with their API keys.
	Clients map[string]string `json:"clients"`
}

func describeUp(s *stack.Stack, log string) running {
	o, p := s.Options(), s.Options().Ports
	at := func(http, grpc int) place {
		return place{addresses(o.Instances, "http://%s:%d", o.Host, http), addresses(o.Instances, "%s:%d", o.Host, grpc)}
	}
	r := running{
		event: event{"up"}, Embedded: o.Embedded(), ProviderURL: s.ProviderURL(), CarrierURL: s.CarrierURL(), NATSURL: s.NATSURL(), Data: o.Data, Log: log,
		Services: map[string]place{
			stack.Gateway: at(p.GatewayHTTP, p.GatewayGRPC), stack.Order: at(p.OrderHTTP, p.OrderGRPC),
			stack.Payment: at(p.PaymentHTTP, p.PaymentGRPC), stack.Shipping: at(p.ShippingHTTP, p.ShippingGRPC),
		},
		Clients: map[string]string{},
	}
	r.Console.URL, r.Console.Credential = s.ConsoleURL(), s.ConsoleCredential()
	fromProvider, fromCarrier := s.Webhooks()
	if fromProvider {
		r.ProviderWebhookURL = s.ProviderWebhookURL()
	}
	if fromCarrier {
		r.CarrierWebhookURL = s.CarrierWebhookURL()
	}
	if o.Embedded() {
		r.Clients = map[string]string{"storefront": devAPIKey, "marketplace": "tl_dev_marketplace"}
	}
	return r
}

// banner tells what runs where, and how to place an order.
func banner(s *stack.Stack, log string) string {
	o, p := s.Options(), s.Options().Ports
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	line("")
	line("  HTTP       %s", instances(o.Instances, "http://%s:%d", o.Host, p.GatewayHTTP))
	line("  gRPC       %s", instances(o.Instances, "%s:%d", o.Host, p.GatewayGRPC))
	line("  order      %s   (gRPC %s)", instances(o.Instances, "http://%s:%d", o.Host, p.OrderHTTP), instances(o.Instances, "%s:%d", o.Host, p.OrderGRPC))
	line("  payment    %s   (gRPC %s)", instances(o.Instances, "http://%s:%d", o.Host, p.PaymentHTTP), instances(o.Instances, "%s:%d", o.Host, p.PaymentGRPC))
	line("  shipping   %s   (gRPC %s)", instances(o.Instances, "http://%s:%d", o.Host, p.ShippingHTTP), instances(o.Instances, "%s:%d", o.Host, p.ShippingGRPC))
	line("  console    %s   (any name, credential %s)", s.ConsoleURL(), s.ConsoleCredential())
	line("  provider   %s/_control/ledger", s.ProviderURL())
	line("  carrier    %s/_control/ledger", s.CarrierURL())
	fromProvider, fromCarrier := s.Webhooks()
	if fromProvider {
		line("  webhooks   %s from the provider", s.ProviderWebhookURL())
	}
	if fromCarrier {
		line("  webhooks   %s from the carrier", s.CarrierWebhookURL())
	}
	line("  JetStream  %s", s.NATSURL())
	line("  data       %s", o.Data)
	line("  log        %s", log)
	if !o.Embedded() {
		line("")
		line("Give a client its API key with: throughline clients add CLIENT --data %s --order %s:%d", o.Data, o.Host, p.OrderGRPC)
		line("")
		line("throughline is up; Ctrl-C stops it")
		return b.String()
	}
	line("")
	line("Clients, for development only: storefront with key tl_dev_storefront, marketplace with key tl_dev_marketplace.")
	line("")
	line("Place an order; the same again is a replay, not a second order:")
	line("")
	line(`  curl -i %s/v1/orders \`, s.URL())
	line(`    -H 'Authorization: Bearer tl_dev_storefront' -H 'Content-Type: application/json' -H 'Idempotency-Key: my-first-order' \`)
	line(`    -d '{"currency":"EUR","lines":[{"sku":"BOOK-1","quantity":2,"unit_price":1250}],"ship_to":{"name":"A. Buyer","line1":"1 High St","city":"Berlin","postal_code":"10115","country":"DE"},"payment_method":"pm_card_visa"}'`)
	line("")
	line("What became of it:")
	line("")
	line(`  curl -s %s/v1/orders -H 'Authorization: Bearer tl_dev_storefront'`, s.URL())
	line("")
	line("And all of it, by the key: on the console, or with")
	line("")
	line("  %s", traceLine(o, os.Args[0], "my-first-order"))
	line("")
	line("throughline is up; Ctrl-C stops it")
	return b.String()
}

// traceLine is how the trail of an order of this system is asked for, with the flags that say where it is, if it is not where the command looks.
func traceLine(o stack.Options, program, key string) string {
	line := program + " trace " + key
	if o.Data != stack.Defaults().Data {
		line += " --data " + o.Data
	}
	for _, at := range []struct {
		service string
		port    int
	}{{stack.Order, o.Ports.OrderGRPC}, {stack.Payment, o.Ports.PaymentGRPC}, {stack.Shipping, o.Ports.ShippingGRPC}} {
		if addr := fmt.Sprintf("%s:%d", o.Host, at.port); addr != defaultAddr(at.service) {
			line += " --" + at.service + " " + addr
		}
	}
	return line
}

// instances writes the addresses of all instances of something.
func instances(n int, format, host string, port int) string {
	return strings.Join(addresses(n, format, host, port), " ")
}

func addresses(n int, format, host string, port int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, host, port+i)
	}
	return list
}
