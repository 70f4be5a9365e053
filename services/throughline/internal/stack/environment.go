package stack

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/throughline/throughline/pkg/postgres"
)

// The services, in the order of their start.
const (
	Shipping = "shipping"
	Payment  = "payment"
	Order    = "order"
	Gateway  = "gateway"
	Console  = "console"
)

// Services lists the services in the order of their start.
func Services() []string { return []string{Shipping, Payment, Order, Gateway, Console} }

// instances is how many of a service run. One console is enough for everybody, and keeps who has logged in for itself.
func (o *Options) instances(service string) int {
	if service == Console {
		return 1
	}
	return o.Instances
}

// needs are where the services find what they depend on.
type needs struct {
	databases   map[string]string
	nats        string
	broker      nats.InProcessConnProvider // nil if it runs elsewhere
	gate        *postgres.Gate             // nil if the databases are elsewhere
	provider    string
	providerKey string
	carrier     string
	credential  string
	operator    string
	console     string
	// What webhooks are signed with; empty takes none.
	providerWebhookSecret, carrierWebhookSecret string
}

// environ gives the environment of one instance of a service: all that it is told.
func (o *Options) environ(n needs, service string, instance int) []string {
	env := []string{
		"THROUGHLINE_INSTANCE=" + instanceName(service, instance),
		"THROUGHLINE_LOG_LEVEL=" + o.LogLevel,
		"THROUGHLINE_LOG_FORMAT=text",
		"THROUGHLINE_GRACE=" + o.Grace.String(),
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + o.OTLPEndpoint,
	}
	if service != Console {
		env = append(env, "THROUGHLINE_SERVICE_CREDENTIAL="+n.credential)
	}
	if service != Gateway {
		env = append(env, "THROUGHLINE_OPERATOR_CREDENTIAL="+n.operator)
	}
	p := o.Ports
	listen := func(grpc, http int) {
		env = append(env, "THROUGHLINE_GRPC_ADDR="+o.addr(grpc, instance), "THROUGHLINE_HTTP_ADDR="+o.addr(http, instance))
	}
	switch service {
	case Gateway:
		listen(p.GatewayGRPC, p.GatewayHTTP)
		if o.Embedded() {
			env = append(env, "THROUGHLINE_EMBEDDED=true")
		}
		return append(env, "THROUGHLINE_ORDER_ADDR="+o.addrs(p.OrderGRPC), "THROUGHLINE_API_KEYS="+o.APIKeys,
			"THROUGHLINE_CLIENT_RATE="+o.ClientRate, "THROUGHLINE_CLIENT_BURST="+o.ClientBurst)
	case Console:
		return append(env, "THROUGHLINE_HTTP_ADDR="+o.addr(p.Console, instance), "THROUGHLINE_ORDER_ADDR="+o.addrs(p.OrderGRPC),
			"THROUGHLINE_PAYMENT_ADDR="+o.addrs(p.PaymentGRPC), "THROUGHLINE_SHIPPING_ADDR="+o.addrs(p.ShippingGRPC), "NATS_URL="+n.nats,
			"THROUGHLINE_CONSOLE_CREDENTIAL="+n.console, "THROUGHLINE_JAEGER_URL="+o.JaegerURL)
	case Order:
		listen(p.OrderGRPC, p.OrderHTTP)
		env = append(env, "THROUGHLINE_PAYMENT_ADDR="+o.addrs(p.PaymentGRPC), "THROUGHLINE_SHIPPING_ADDR="+o.addrs(p.ShippingGRPC),
			"THROUGHLINE_KEY_LIFETIME="+o.KeyLifetime, "THROUGHLINE_CLIENT_RETRIES="+o.ClientRetries, "THROUGHLINE_VERIFY_EVERY="+o.VerifyEvery)
		if o.Strict {
			env = append(env, "THROUGHLINE_STRICT=true")
		}
	case Payment:
		listen(p.PaymentGRPC, p.PaymentHTTP)
		env = append(env, "THROUGHLINE_PROVIDER_URL="+n.provider, "THROUGHLINE_PROVIDER_KEY="+n.providerKey,
			"THROUGHLINE_WEBHOOK_ADDR="+o.addr(p.PaymentWebhooks, instance), "THROUGHLINE_WEBHOOK_SECRET="+n.providerWebhookSecret)
		if o.CustomerTime > 0 {
			env = append(env, "THROUGHLINE_CUSTOMER_TIME="+o.CustomerTime.String())
		}
	case Shipping:
		listen(p.ShippingGRPC, p.ShippingHTTP)
		env = append(env, "THROUGHLINE_CARRIER_URL="+n.carrier,
			"THROUGHLINE_WEBHOOK_ADDR="+o.addr(p.ShippingWebhooks, instance), "THROUGHLINE_WEBHOOK_SECRET="+n.carrierWebhookSecret)
	}
	return append(env, "DATABASE_URL="+n.databases[service], "NATS_URL="+n.nats)
}

// instanceName tells the instances of a service apart, in logs, leases and process id files.
func instanceName(service string, instance int) string {
	if instance == 0 {
		return service
	}
	return fmt.Sprintf("%s-%d", service, instance)
}

// opsAddr is where an instance answers /readyz.
func (o *Options) opsAddr(service string, instance int) string {
	p := o.Ports
	return o.addr(map[string]int{
		Gateway: p.GatewayHTTP, Order: p.OrderHTTP, Payment: p.PaymentHTTP, Shipping: p.ShippingHTTP, Console: p.Console,
	}[service], instance)
}
