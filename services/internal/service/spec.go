package service

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"google.golang.org/grpc"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/lifecycle"
	"github.com/throughline/throughline/pkg/localnet"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
	"github.com/throughline/throughline/services/internal/doctor"
	"github.com/throughline/throughline/services/internal/trail"
	"github.com/throughline/throughline/services/internal/verify"
)

// Spec is one service.
type Spec struct {
	// Name is the service's name in logs, traces, metrics and on its connections.
	Name   string
	Config Config
	// GRPCAddr is where gRPC is served, HTTPAddr where /healthz, /readyz and /metrics are. Empty means a free port on loopback.
	GRPCAddr string
	HTTPAddr string
	// WebhookAddr is where notices of the outside are taken, on a port of their own: it is open to others, and metrics are not. Empty
	// takes none.
	WebhookAddr string
	// Settings is the service's whole configuration, for the log; nil means Config.
	Settings any
	// Migrations are run in their order, after those of the outbox and the inbox.
	Migrations []postgres.Migrations
	// Build makes the parts of the service. It is called once, when the database is there and migrated. ctx ends with the
	// start-up; what lives longer belongs into a component.
	Build func(ctx context.Context, rt *Runtime) (Parts, error)
}

// Runtime is what the parts of a service are made from. All of it outlives them.
type Runtime struct {
	Name string
	// Owner names this instance in leases, unlike any other.
	Owner     string
	Logger    *slog.Logger
	Telemetry *telemetry.Telemetry
	Pool      *pgxpool.Pool
	// Gate is what those who write batches to Pool go through, the consumers among them.
	Gate *postgres.Gate
	Conn *messaging.Conn
	// Relay is running when the parts run.
	Relay *outbox.Relay
	// Outside is [Options.Outside], and Local [Options.Local].
	Outside http.RoundTripper
	Local   *localnet.Network
}

// Parts are what is particular to one service.
type Parts struct {
	// Register adds the service's gRPC services; nil adds none.
	Register func(grpc.ServiceRegistrar)
	// Operators are the full names of those that take the operator credential.
	Operators []string
	// Draining, if not nil, is called when no more calls are taken and those in hand are waited for. Calls that wait should then end.
	Draining func()
	// Components run while consumers and gRPC do; they start before them, in their order, and end after them.
	Components []Component
	// Tables are those that grow, besides those of the outbox and the inbox, for the doctor.
	Tables []doctor.Table
	// Consumers run their Apply through an inbox.Processor.
	Consumers []Consumer
	// Trail is what is told of orders beside what all services have on record.
	Trail Trail
	// Verify is what a proof of effects is told beside that.
	Verify Verify
	// Webhooks takes the notices of the outside at Spec.WebhookAddr. It must bound what it reads, and trust nothing that is not signed.
	Webhooks http.Handler
	// Checks are asked by /readyz, besides those of the runtime.
	Checks []Check
}

// Trail is what is particular to the service in what it tells of an order; see trail.Config.
type Trail struct {
	Own            trail.Own
	Participant    bool
	Peer, Webhooks string
	Operations     []string
	Undos          []string
}

// Verify is what is particular to the service in a proof of effects; see verify.Config.
type Verify struct {
	Orders   verify.Orders
	Holdings verify.Holdings
	// Schedule, if not nil, makes the component that proves effects again and again. self asks this service.
	Schedule func(self verifyv1.VerifyServiceClient) (Component, error)
}

// Component is a named part that runs.
type Component struct {
	Name string
	lifecycle.Component
}

// Consumer is one durable consumer and what is done with its messages. Its durable name is its name in the inbox.
type Consumer struct {
	messaging.ConsumerConfig
	Apply inbox.Apply
	// Sequenced and Recorded are those of inbox.Processor.
	Sequenced, Recorded bool
}

// Check is a named readiness check.
type Check struct {
	Name  string
	Check lifecycle.Check
}

// Options are what a process that holds several services shares with one of them. The zero value works.
type Options struct {
	// Logger is used as it is; nil makes one by Config's format and level, to standard error.
	Logger *slog.Logger
	// Telemetry is used and not shut down; nil makes one from Config.
	Telemetry *telemetry.Telemetry
	// Outside takes the place of the network between the service and the outside system that it calls, for measurements; nil is the
	// network. No setting leads here: only the Go program that runs the service can give one.
	Outside http.RoundTripper
	// QueryTracer sees each query that the service sends to its database, for measurements; nil leaves that to the traces.
	QueryTracer pgx.QueryTracer
	// Broker is the NATS server that Config names, where it runs in this process; nil connects over the network, as the console always does.
	Broker nats.InProcessConnProvider
	// Local is where the services of this process find each other's gRPC; nil is the network.
	Local *localnet.Network
	// ServerGate is what services go through that have their databases on one server, on this machine; nil is open.
	ServerGate *postgres.Gate
	// Work ends the work in hand at once; nil leaves it Config.Grace.
	Work context.Context //nolint:containedctx // it is handed on at once and never kept
	// GRPCListener, HTTPListener and WebhookListener take the place of the addresses. They are closed at the end.
	GRPCListener, HTTPListener, WebhookListener net.Listener
	// Serving, if not nil, is called once when the probes are served: the service may still wait for what it needs.
	Serving func(Addresses)
	// Ready, if not nil, is called once when calls and messages are taken.
	Ready func(Addresses)
}

// Addresses are where a service listens: host:port. Webhook is empty where no notices are taken.
type Addresses struct{ GRPC, HTTP, Webhook string }

// Runs makes a component of a function that needs no time to get ready.
func Runs(name string, run func(stop, work context.Context) error) Component {
	return Component{Name: name, Component: lifecycle.Func(func(stop, work context.Context, ready func()) error {
		ready()
		return run(stop, work)
	})}
}
