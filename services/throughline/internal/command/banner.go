package command

import (
	"fmt"
	"strings"

	"github.com/throughline/throughline/services/throughline/internal/stack"
)

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
	line("throughline is up; Ctrl-C stops it")
	return b.String()
}

// instances writes the addresses of all instances of something.
func instances(n int, format, host string, port int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, host, port+i)
	}
	return strings.Join(list, " ")
}
