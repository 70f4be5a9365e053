package grpcx

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // makes the clients' health checks work
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/throughline/throughline/pkg/localnet"
	"github.com/throughline/throughline/pkg/telemetry"
)

// clientPing is how often an idle connection is tried. A peer that vanished without a word is noticed after this and
// pingTimeout, and not after the minutes that TCP takes.
const (
	clientPing  = 20 * time.Second
	pingTimeout = 5 * time.Second
)

// serviceConfig spreads calls over all instances that say that they serve.
const serviceConfig = `{"loadBalancingConfig":[{"round_robin":{}}],"healthCheckConfig":{"serviceName":""}}`

// ErrNoAddress says that a connection was to be made to nowhere.
var ErrNoAddress = errors.New("no address is given")

// ClientConfig says how a connection is made.
type ClientConfig struct {
	// Addr is where the service listens: host:port, or several with commas between, one for each instance. A single name
	// is resolved again whenever connections are lost, and every address it has counts as an instance.
	Addr string
	// Credential is presented with every call.
	Credential string
	// MaxDuration bounds every call that has no sooner deadline; 0 means DefaultMaxDuration.
	MaxDuration time.Duration
	// Local reaches servers of this process without the network; nil reaches all over it.
	Local *localnet.Network
	// Telemetry makes spans and metrics, and sends the trace context; nil does neither.
	Telemetry *telemetry.Telemetry
	// Options come last.
	Options []grpc.DialOption
}

// Dial makes a connection, without waiting for it. Calls fail with codes.Unavailable while no instance can be reached,
// unless they ask to wait.
func Dial(c ClientConfig) (*grpc.ClientConn, error) {
	if c.Credential == "" {
		return nil, fmt.Errorf("connecting to %q: %w", c.Addr, ErrNoCredential)
	}
	if c.MaxDuration <= 0 {
		c.MaxDuration = DefaultMaxDuration
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(bearer(c.Credential)),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDisableServiceConfig(), // a name server has no say in how we call
		grpc.WithMaxHeaderListSize(maxAnswerHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: clientPing, Timeout: pingTimeout, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			// A neighbour that restarts is back within a second; it is not to be found half a minute later.
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithChainUnaryInterceptor(shrinkDeadline(c.MaxDuration)),
	}
	if c.Telemetry != nil {
		opts = append(opts, grpc.WithStatsHandler(c.Telemetry.ClientHandler()))
	}
	if c.Local != nil {
		opts = append(opts, grpc.WithContextDialer(c.Local.DialContext))
	}
	target, err := targetOf(c.Addr)
	if err != nil {
		return nil, fmt.Errorf("connecting to %q: %w", c.Addr, err)
	}
	opts = append(opts, target.opts...)
	conn, err := grpc.NewClient(target.name, append(opts, c.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("connecting to %q: %w", c.Addr, err)
	}
	return conn, nil
}

type target struct {
	name string
	opts []grpc.DialOption
}

func targetOf(addr string) (target, error) {
	var endpoints []resolver.Endpoint
	for a := range strings.SplitSeq(addr, ",") {
		if a = strings.TrimSpace(a); a != "" {
			endpoints = append(endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a}}})
		}
	}
	switch len(endpoints) {
	case 0:
		return target{}, ErrNoAddress
	case 1:
		single := endpoints[0].Addresses[0].Addr
		if strings.Contains(single, "://") || strings.HasPrefix(single, "passthrough:") {
			return target{name: single}, nil
		}
		return target{name: "dns:///" + single}, nil
	}
	list := manual.NewBuilderWithScheme("list")
	list.InitialState(resolver.State{Endpoints: endpoints})
	return target{name: "list:///instances", opts: []grpc.DialOption{grpc.WithResolvers(list)}}, nil
}

// bearer presents a service credential.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{MetadataAuthorization: "Bearer " + string(b)}, nil
}

// RequireTransportSecurity answers no: between services the network, or what wraps it, keeps the credential secret.
func (bearer) RequireTransportSecurity() bool { return false }
