// Package app puts the order service together.
package app

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/throughline/throughline/pkg/idempotency"
	pkgpostgres "github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/saga"
	attentionv1 "github.com/throughline/throughline/proto/gen/throughline/attention/v1"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/internal/stepapi"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/internal/verify"
	"github.com/throughline/throughline/services/order/internal/bus"
	"github.com/throughline/throughline/services/order/internal/config"
	"github.com/throughline/throughline/services/order/internal/ending"
	"github.com/throughline/throughline/services/order/internal/grpcapi"
	"github.com/throughline/throughline/services/order/internal/placeorder"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// tracerName names the tracer of orders.
const tracerName = "github.com/throughline/throughline/services/order"

// Spec is the order service.
func Spec(cfg config.Config) service.Spec {
	return service.Spec{
		Name: topology.Order, Config: cfg.Config, Settings: cfg, GRPCAddr: cfg.GRPCAddr, HTTPAddr: cfg.HTTPAddr,
		Migrations: []pkgpostgres.Migrations{saga.Migrations(), idempotency.Migrations(), postgres.Migrations()},
		Build: func(ctx context.Context, rt *service.Runtime) (service.Parts, error) {
			return build(ctx, cfg, rt)
		},
	}
}

func build(ctx context.Context, cfg config.Config, rt *service.Runtime) (service.Parts, error) {
	participants, conns, err := connect(cfg, rt)
	if err != nil {
		return service.Parts{}, err
	}
	engine := bus.NewEngine(rt, participants, cfg.DueRate)
	if cfg.Strict {
		if err := engine.RefuseUnknown(ctx); err != nil {
			return service.Parts{}, fmt.Errorf("starting strictly: %w", errors.Join(err, conns.close()))
		}
	}
	placer := placeorder.NewPlacer(rt.Pool, rt.Gate, engine, rt.Logger)
	replays := &idempotency.ReplayCounter{Pool: rt.Pool, Logger: rt.Logger}
	endings := ending.NewWatcher(rt.Pool, rt.Logger)
	api := grpcapi.New(grpcapi.Config{
		Pool: rt.Pool, Engine: engine, Placer: placer, KeyLifetime: cfg.KeyLifetime, Replays: replays, Endings: endings, Logger: rt.Logger,
		Tracer: rt.Telemetry.Tracer(tracerName),
	})
	reaper := idempotency.Reaper{Pool: rt.Pool, Owner: rt.Owner, Logger: rt.Logger}
	return service.Parts{
		Register: func(r grpc.ServiceRegistrar) {
			orderv1.RegisterOrderServiceServer(r, api)
			orderv1.RegisterAccessServiceServer(r, grpcapi.NewAccess(rt.Pool, cfg.KeyLifetime))
			orderv1.RegisterClientServiceServer(r, grpcapi.NewClients(rt.Pool, rt.Logger))
			orderv1.RegisterOrderBookServiceServer(r, grpcapi.NewBook(rt.Pool))
			attentionv1.RegisterAttentionServiceServer(r, grpcapi.NewAttention(rt.Pool, engine, participants, rt.Logger))
		},
		Operators: []string{
			orderv1.ClientService_ServiceDesc.ServiceName, orderv1.OrderBookService_ServiceDesc.ServiceName,
			attentionv1.AttentionService_ServiceDesc.ServiceName,
		},
		Draining: endings.Stop,
		Trail: service.Trail{
			Own: grpcapi.Trail{Pool: rt.Pool}, Undos: placeorder.Undos(),
		},
		Verify: service.Verify{Orders: grpcapi.Verify{Pool: rt.Pool}, Schedule: schedule(cfg, rt, participants)},
		Components: []service.Component{
			service.Runs("participants", func(stop, _ context.Context) error {
				<-stop.Done()
				return conns.close()
			}),
			service.Runs("key-reaper", func(stop, _ context.Context) error { return reaper.Run(stop) }),
			service.Runs("replay-counter", replays.Run),
			service.Runs("endings", endings.Run),
			bus.Timers(engine),
			service.Runs("placer", placer.Run), // ends after gRPC, whose calls it serves
		},
		Consumers: []service.Consumer{bus.Replies(engine, endings)},
	}, nil
}

// verifyMeter names the meter of proofs of effects.
const verifyMeter = "github.com/throughline/throughline/services/internal/verify"

// schedule makes the proofs of effects that the service makes by itself; nil if it is to make none.
func schedule(cfg config.Config, rt *service.Runtime, participants stepapi.Participants) func(verifyv1.VerifyServiceClient) (service.Component, error) {
	if cfg.VerifyEvery <= 0 {
		return nil
	}
	return func(self verifyv1.VerifyServiceClient) (service.Component, error) {
		verifier := &verify.Verifier{Services: map[string]verifyv1.VerifyServiceClient{topology.Order: self}}
		for name, conn := range participants {
			verifier.Services[name] = verifyv1.NewVerifyServiceClient(conn)
		}
		s, err := verify.NewSchedule(verify.Schedule{
			Verifier: verifier, Memory: postgres.Proofs{Pool: rt.Pool}, Pool: rt.Pool, Owner: rt.Owner, Every: cfg.VerifyEvery, Logger: rt.Logger,
			Meter: rt.Telemetry.Meter(verifyMeter),
		})
		if err != nil {
			return service.Component{}, err
		}
		return service.Runs("verify", func(stop, _ context.Context) error { return s.Run(stop) }), nil
	}
}

type connections []*grpc.ClientConn

func (c connections) close() error {
	var errs []error
	for _, conn := range c {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// connect makes the connections over which participants are asked, without waiting for them.
func connect(cfg config.Config, rt *service.Runtime) (stepapi.Participants, connections, error) {
	participants, conns := stepapi.Participants{}, connections{}
	for name, addr := range map[string]string{topology.Payment: cfg.PaymentAddr, topology.Shipping: cfg.ShippingAddr} {
		conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: addr, Credential: cfg.ServiceCredential, Local: rt.Local, Telemetry: rt.Telemetry})
		if err != nil {
			return nil, nil, fmt.Errorf("connecting to %s: %w", name, errors.Join(err, conns.close()))
		}
		participants[name] = conn
		conns = append(conns, conn)
	}
	return participants, conns, nil
}
