// Package app puts the shipping service together.
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
	"github.com/throughline/throughline/services/shipping/internal/bus"
	"github.com/throughline/throughline/services/shipping/internal/carrier"
	"github.com/throughline/throughline/services/shipping/internal/config"
	"github.com/throughline/throughline/services/shipping/internal/grpcapi"
	"github.com/throughline/throughline/services/shipping/internal/postgres"
)

// tracerName names the tracer of steps, participantMeter their meter.
const (
	tracerName       = "github.com/throughline/throughline/services/shipping"
	participantMeter = "github.com/throughline/throughline/pkg/participant"
)

// Spec is the shipping service.
func Spec(cfg config.Config) service.Spec {
	return service.Spec{
		Name: topology.Shipping, Config: cfg.Config, Settings: cfg, GRPCAddr: cfg.GRPCAddr, HTTPAddr: cfg.HTTPAddr, WebhookAddr: cfg.WebhookListen(),
		Migrations: []pkgpostgres.Migrations{participant.Migrations(), postgres.Migrations()},
		Build: func(_ context.Context, rt *service.Runtime) (service.Parts, error) {
			return build(cfg, rt)
		},
	}
}

func build(cfg config.Config, rt *service.Runtime) (service.Parts, error) {
	client := carrier.New(carrier.Config{
		URL: cfg.CarrierURL, Key: cfg.CarrierKey, Timeout: cfg.CarrierTimeout, Transport: rt.Outside,
		Wrap: func(base http.RoundTripper) http.RoundTripper { return rt.Telemetry.ClientTransport(base, "carrier") },
	})
	steps := bus.NewSteps(bus.Config{Carrier: client, Settle: cfg.StepSettle, CheckTime: cfg.CheckTime, Logger: rt.Logger})
	var tracer trace.Tracer // nil where spans go nowhere, so that the messages' own trace context is passed on unchanged
	if rt.Telemetry.Exporting() {
		tracer = rt.Telemetry.Tracer(tracerName)
	}
	runner, err := participant.NewRunner(participant.Config{
		Pool: rt.Pool, Gate: rt.Gate, Relay: rt.Relay, Projector: bus.Projector{}, Source: topology.ShippingSource,
		ReplySubject: topology.PlaceOrderReplies, Consumer: topology.ShippingCommandsConsumer, Owner: rt.Owner,
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
			Pool: rt.Pool, Consumer: topology.CarrierWebhooks, Wake: runner.Wake, Logger: rt.Logger,
			Tracer: rt.Telemetry.Tracer(webhook.MeterName), Meter: rt.Telemetry.Meter(webhook.MeterName),
		}, cfg.WebhookSecrets()),
		Trail: service.Trail{
			Own: postgres.Trail{Pool: rt.Pool}, Participant: true, Peer: "carrier", Webhooks: topology.CarrierWebhooks,
			Undos: []string{bus.CancelShipment},
		},
		Verify:    service.Verify{Holdings: grpcapi.Verify(rt.Pool, client)},
		Consumers: []service.Consumer{{ConsumerConfig: topology.ShippingConsumer(), Apply: runner.ApplyCommands, Recorded: true}},
	}, nil
}
