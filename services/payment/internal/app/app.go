// Package app puts the payment service together.
package app

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/lifecycle"
	"github.com/throughline/throughline/pkg/participant"
	pkgpostgres "github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/internal/webhook"
	"github.com/throughline/throughline/services/payment/internal/bus"
	"github.com/throughline/throughline/services/payment/internal/config"
	"github.com/throughline/throughline/services/payment/internal/grpcapi"
	"github.com/throughline/throughline/services/payment/internal/postgres"
	"github.com/throughline/throughline/services/payment/internal/provider"
)

// tracerName names the tracer of steps, participantMeter their meter.
const (
	tracerName       = "github.com/throughline/throughline/services/payment"
	participantMeter = "github.com/throughline/throughline/pkg/participant"
)

// Spec is the payment service.
func Spec(cfg config.Config) service.Spec {
	return service.Spec{
		Name: topology.Payment, Config: cfg.Config, Settings: cfg, GRPCAddr: cfg.GRPCAddr, HTTPAddr: cfg.HTTPAddr, WebhookAddr: cfg.WebhookListen(),
		Migrations: []pkgpostgres.Migrations{participant.Migrations(), postgres.Migrations()},
		Build: func(_ context.Context, rt *service.Runtime) (service.Parts, error) {
			return build(cfg, rt)
		},
	}
}

func build(cfg config.Config, rt *service.Runtime) (service.Parts, error) {
	client := provider.New(provider.Config{
		URL: cfg.ProviderURL, Key: cfg.ProviderKey, Timeout: cfg.ProviderTimeout, ReturnURL: cfg.ReturnURL, Transport: rt.Outside,
		Wrap: func(base http.RoundTripper) http.RoundTripper {
			return rt.Telemetry.ClientTransport(base, "payment_provider")
		},
	})
	steps := bus.NewSteps(bus.Config{
		Provider: client, KeyLifetime: cfg.ProviderKeyLifetime, CustomerTime: cfg.CustomerTime, Logger: rt.Logger,
	})
	var tracer trace.Tracer // nil where spans go nowhere, so that the messages' own trace context is passed on unchanged
	if rt.Telemetry.Exporting() {
		tracer = rt.Telemetry.Tracer(tracerName)
	}
	runner, err := participant.NewRunner(participant.Config{
		Pool: rt.Pool, Gate: rt.Gate, Relay: rt.Relay, Projector: bus.Projector{}, Source: topology.PaymentSource,
		ReplySubject: topology.PlaceOrderReplies, Consumer: topology.PaymentCommandsConsumer, Owner: rt.Owner,
		Lease: cfg.StepLease, Settle: cfg.StepSettle, Concurrency: cfg.StepConcurrency, RetryRate: cfg.StepRetryRate, Logger: rt.Logger, Tracer: tracer,
		Meter: rt.Telemetry.Meter(participantMeter),
	}, steps.All()...)
	if err != nil {
		return service.Parts{}, err
	}
	return service.Parts{
		Register: grpcapi.Register(rt.Pool),
		Components: []service.Component{{Name: "steps", Component: lifecycle.Func(func(stop, work context.Context, ready func()) error {
			defer client.Close()
			ready()
			return runner.Run(stop, work)
		})}},
		Webhooks: bus.Webhooks(webhook.Config{
			Pool: rt.Pool, Consumer: topology.ProviderWebhooks, Wake: runner.Wake, Logger: rt.Logger,
			Tracer: rt.Telemetry.Tracer(webhook.MeterName), Meter: rt.Telemetry.Meter(webhook.MeterName),
		}, cfg.WebhookSecrets()),
		Trail: service.Trail{
			Own: postgres.Trail{Pool: rt.Pool}, Participant: true, Peer: "payment_provider", Webhooks: topology.ProviderWebhooks,
			Operations: bus.Operations(), Undos: []string{bus.VoidPayment},
		},
		Verify:    service.Verify{Holdings: grpcapi.Verify(rt.Pool, client)},
		Consumers: []service.Consumer{{ConsumerConfig: topology.PaymentConsumer(), Apply: runner.ApplyCommands, Recorded: true}},
	}, nil
}
