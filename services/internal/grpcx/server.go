package grpcx

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/throughline/throughline/pkg/telemetry"
)

const (
	// MaxMessage bounds a message on every connection, in bytes. It is what NATS takes by default, so that what came in
	// by gRPC can go on. The public edge takes less.
	MaxMessage = 1 << 20
	// maxRequestHeaders bounds the metadata of a request: our entries are under 2 KiB, and a trace adds 0.6 KiB.
	maxRequestHeaders = 16 << 10
	// maxAnswerHeaders bounds the metadata of an answer, which may hold a stored body: at most the public body limit of 256 KiB
	// with the defaults written out, in base64.
	maxAnswerHeaders = 1 << 20
	// maxStreams is how many calls one connection carries at once. More wait at the client.
	maxStreams = 1000
	// DefaultMaxDuration is how long a call may take at most, whatever its caller asks for.
	DefaultMaxDuration = 30 * time.Second
)

// ServerConfig says how a server is made.
type ServerConfig struct {
	// Credentials are the service credentials that callers may present, several while they are being exchanged. At least
	// one is needed, unless Public is set.
	Credentials []string
	// Operators says which services are for operators only. It is not for Public servers.
	Operators Operators
	// Public leaves out the check of credentials, for a server whose own interceptors check who calls.
	Public bool
	// MaxDuration bounds every call; 0 means DefaultMaxDuration.
	MaxDuration time.Duration
	// Telemetry makes the spans and metrics of calls; nil makes none.
	Telemetry *telemetry.Telemetry
	// Logger hears of panics and of errors that callers are not told; nil means none.
	Logger *slog.Logger
	// Interceptors run after those of this package, in their order.
	Interceptors []grpc.UnaryServerInterceptor
	// Options come last.
	Options []grpc.ServerOption
}

// Operators are the services that only operators may call.
type Operators struct {
	// Services are their full names, such as "throughline.order.v1.ClientService".
	Services []string
	// Shared are the full names of those that other services may call as well, with their own credential.
	Shared []string
	// Credentials are what their callers must present in the place of the service credential, which does not let anybody in here. Without
	// one nobody may call them.
	Credentials []string
}

// Server is a gRPC server with a health service.
type Server struct {
	*grpc.Server
	// Health is what clients ask before they send calls here. It says SERVING until Drain.
	Health *health.Server

	once    sync.Once
	methods map[string]bool // the full names; written once
}

// NewServer makes a server. It fails with ErrNoCredential when it would be open to everybody and is not Public.
func NewServer(c ServerConfig) (*Server, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxDuration <= 0 {
		c.MaxDuration = DefaultMaxDuration
	}
	guard, err := newGuard(c)
	if err != nil {
		return nil, fmt.Errorf("making a gRPC server: %w", err)
	}
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.MaxHeaderListSize(maxRequestHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			// Finds a peer that is gone within 30 s + 10 s, and lets go of one that has nothing to say.
			Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: 15 * time.Minute,
		}),
		// Half the interval of our own clients, so that none is ever sent away for pinging too often.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientPing / 2, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(append([]grpc.UnaryServerInterceptor{
			answerErrors(c.Logger), guard.unary, limitDuration(c.MaxDuration),
		}, c.Interceptors...)...),
		grpc.ChainStreamInterceptor(guard.stream),
	}
	s := &Server{Health: health.NewServer()}
	if c.Telemetry != nil {
		opts = append(opts, grpc.StatsHandler(c.Telemetry.ServerHandler(s.serves)))
	}
	s.Server = grpc.NewServer(append(opts, c.Options...)...)
	healthpb.RegisterHealthServer(s.Server, s.Health)
	return s, nil
}

// serves says whether a method, by its full name, is served here, for what is told of calls. Probes of health are not: there is one every few seconds
// on each connection.
func (s *Server) serves(method string) bool {
	if strings.HasPrefix(method, healthService) {
		return false
	}
	s.once.Do(func() { // the services are all registered when the first call comes
		s.methods = make(map[string]bool)
		for service, info := range s.GetServiceInfo() {
			for _, m := range info.Methods {
				s.methods["/"+service+"/"+m.Name] = true
			}
		}
	})
	return s.methods[method]
}

// Drain tells clients to send no new calls, lets calls in hand finish and returns. When force is closed it cuts them off.
func (s *Server) Drain(force <-chan struct{}) {
	s.Health.Shutdown()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.GracefulStop()
	}()
	select {
	case <-done:
	case <-force:
		s.Stop()
		<-done
	}
}

// guard lets in who presents a credential.
type guard struct {
	open      bool
	hashes    [][sha256.Size]byte
	operators [][sha256.Size]byte
	reserved  map[string]bool // services for operators
	shared    map[string]bool // services for operators and others
}

func newGuard(c ServerConfig) (*guard, error) {
	g := &guard{
		open: c.Public, hashes: hashed(c.Credentials), operators: hashed(c.Operators.Credentials), reserved: make(map[string]bool),
		shared: make(map[string]bool),
	}
	for _, service := range c.Operators.Services {
		g.reserved[service] = true
	}
	for _, service := range c.Operators.Shared {
		g.shared[service] = true
	}
	if !g.open && len(g.hashes) == 0 {
		return nil, ErrNoCredential
	}
	for _, operator := range g.operators {
		if slices.Contains(g.hashes, operator) {
			return nil, ErrSameCredential
		}
	}
	return g, nil
}

func hashed(credentials []string) [][sha256.Size]byte {
	var hashes [][sha256.Size]byte
	for _, cred := range credentials {
		if cred != "" {
			hashes = append(hashes, sha256.Sum256([]byte(cred)))
		}
	}
	return hashes
}

// check compares in constant time: hashes have one length, and every credential is compared.
func (g *guard) check(method string, authorization []string) error {
	if g.open {
		return nil
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	kind, hashes := "service", g.hashes
	switch {
	case g.reserved[service]:
		kind, hashes = "operator", g.operators
	case g.shared[service], strings.HasPrefix(method, healthService): // every caller's connection asks for the health
		hashes = slices.Concat(hashes, g.operators)
	}
	credential, ok := Bearer(authorization)
	if !ok {
		return Error(Unauthenticated, "the call has no "+kind+" credential")
	}
	got := sha256.Sum256([]byte(credential))
	match := 0
	for _, want := range hashes {
		match |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	if match != 1 {
		return Error(Unauthenticated, "the "+kind+" credential is wrong")
	}
	return nil
}

// Bearer answers the credential in authorization values of which there must be exactly one, in the form of RFC 6750:
// "Bearer " in any case, and a token without blanks.
func Bearer(values []string) (string, bool) {
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(strings.Trim(values[0], " \t"), " ")
	token = strings.TrimLeft(token, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " \t,") {
		return "", false
	}
	return token, true
}
