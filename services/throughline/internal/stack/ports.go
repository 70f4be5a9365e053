package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// checkPorts finds out which ports are taken, before anything is started. Postgres is left out: a server that a killed
// process left behind may still hold its port, and is stopped by the start of ours.
func (o *Options) checkPorts(ctx context.Context) error {
	p := o.Ports
	type use struct {
		flag string
		port int
		n    int
	}
	uses := []use{
		{"http", p.GatewayHTTP, o.Instances}, {"grpc", p.GatewayGRPC, o.Instances},
		{"order-grpc", p.OrderGRPC, o.Instances}, {"order-http", p.OrderHTTP, o.Instances},
		{"payment-grpc", p.PaymentGRPC, o.Instances}, {"payment-http", p.PaymentHTTP, o.Instances},
		{"shipping-grpc", p.ShippingGRPC, o.Instances}, {"shipping-http", p.ShippingHTTP, o.Instances},
		{"payment-webhooks", p.PaymentWebhooks, o.Instances}, {"shipping-webhooks", p.ShippingWebhooks, o.Instances},
	}
	uses = append(uses, use{"console", p.Console, 1})
	if o.External.Provider == "" {
		uses = append(uses, use{"provider", p.Provider, 1})
	}
	if o.External.Carrier == "" {
		uses = append(uses, use{"carrier", p.Carrier, 1})
	}
	if o.Embedded() {
		uses = append(uses, use{"nats", p.NATS, 1})
	}
	var taken error
	owner := make(map[int]string)
	for _, u := range uses {
		for i := range u.n {
			if other, ok := owner[u.port+i]; ok {
				taken = errors.Join(taken, fmt.Errorf("port %d is wanted by --%s and by --%s", u.port+i, other, u.flag))
				continue
			}
			owner[u.port+i] = u.flag
			taken = errors.Join(taken, o.checkPort(ctx, u.flag, u.port, i))
		}
	}
	return taken
}

func (o *Options) checkPort(ctx context.Context, flag string, base, instance int) error {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", o.addr(base, instance))
	if err != nil {
		return fmt.Errorf("port %d is taken; choose another with --%s: %w", base+instance, flag, err)
	}
	return l.Close()
}
