package web_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	attentionv1 "github.com/throughline/throughline/proto/gen/throughline/attention/v1"
	deadletterv1 "github.com/throughline/throughline/proto/gen/throughline/deadletter/v1"
	doctorv1 "github.com/throughline/throughline/proto/gen/throughline/doctor/v1"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/console/internal/live"
	"github.com/throughline/throughline/services/console/internal/operator"
	"github.com/throughline/throughline/services/console/internal/session"
	"github.com/throughline/throughline/services/console/internal/web"
	"github.com/throughline/throughline/services/internal/grpcx"
)

const (
	credential         = "what people show"
	operatorCredential = "what-the-console-shows"
	orderID            = "0c9f5e1e-3f0a-5c57-9d0a-111111111111"
	otherID            = "0c9f5e1e-3f0a-5c57-9d0a-222222222222"
	// typed is what a customer typed, as far as a customer can.
	typed = `<script>alert("1")</script><img src=x onerror='a'>&`
)

// services are all services in one: what the console asks, with answers that a test sets.
type services struct {
	attentionv1.UnimplementedAttentionServiceServer
	deadletterv1.UnimplementedDeadLetterServiceServer
	doctorv1.UnimplementedDoctorServiceServer
	orderv1.UnimplementedOrderBookServiceServer
	trailv1.UnimplementedTrailServiceServer

	mu       sync.Mutex
	resolved []*attentionv1.ResolveRequest
	replayed []*deadletterv1.ReplayDeadLetterRequest
	dry      int
	revealed []*trailv1.ListEntriesRequest
	// replaying, if not nil, is waited for by each replay.
	replaying chan struct{}
	matches   []*trailv1.Match
	entries   []*trailv1.Entry
	failWith  error
}

func (s *services) caseOf() *attentionv1.Case {
	return &attentionv1.Case{
		OrderId: orderID, ClientId: "storefront", IdempotencyKey: typed, Status: "NEEDS_ATTENTION", Currency: "EUR", Total: 1250, Reason: "undo_refused",
		Detail: typed, Step: "void_payment", Since: timestamppb.Now(), FailureReason: "address_refused",
	}
}

func (s *services) ListAttention(context.Context, *attentionv1.ListAttentionRequest) (*attentionv1.ListAttentionResponse, error) {
	return &attentionv1.ListAttentionResponse{Cases: []*attentionv1.Case{s.caseOf()}}, nil
}

func (s *services) GetAttention(_ context.Context, req *attentionv1.GetAttentionRequest) (*attentionv1.GetAttentionResponse, error) {
	if req.GetOrderId() != orderID {
		return nil, grpcx.Error(grpcx.OrderNotFound, "there is no such order")
	}
	return &attentionv1.GetAttentionResponse{
		Case: s.caseOf(), SagaStatus: "compensating",
		Steps:   []*attentionv1.Step{{Name: "authorize_payment", Phase: "undo_refused", Attention: "undo_refused", Attempts: 1}},
		Records: []*attentionv1.Record{{Participant: "payment", Step: "void_payment", State: "REFUSED", LastError: typed}},
		Actions: []*attentionv1.Action{{Step: "void_payment", Actor: typed, Reason: typed, Resolution: attentionv1.Resolution_RESOLUTION_RETRY, At: timestamppb.Now()}},
		History: []*attentionv1.Transition{{From: "running", To: "compensating", Cause: "reply", At: timestamppb.Now()}},
	}, nil
}

func (s *services) Resolve(_ context.Context, req *attentionv1.ResolveRequest) (*attentionv1.ResolveResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failWith != nil {
		return nil, s.failWith
	}
	s.resolved = append(s.resolved, req)
	return &attentionv1.ResolveResponse{Action: &attentionv1.Action{Step: req.GetStep(), Resolution: req.GetResolution()}, Status: "FAILED"}, nil
}

func letterOf() *deadletterv1.DeadLetter {
	return &deadletterv1.DeadLetter{
		Id: 7, Consumer: "payment-commands", OrderId: orderID, Subject: "cmd.payment.authorize_payment", State: "dead", Error: typed, Attempts: 3,
		CreatedAt: timestamppb.Now(), Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

func (s *services) ListDeadLetters(context.Context, *deadletterv1.ListDeadLettersRequest) (*deadletterv1.ListDeadLettersResponse, error) {
	return &deadletterv1.ListDeadLettersResponse{DeadLetters: []*deadletterv1.DeadLetter{letterOf()}}, nil
}

func (s *services) GetDeadLetter(_ context.Context, req *deadletterv1.GetDeadLetterRequest) (*deadletterv1.GetDeadLetterResponse, error) {
	if req.GetId() == noLetter {
		return nil, grpcx.Error(grpcx.UnknownName, "the service has no such dead letter")
	}
	return &deadletterv1.GetDeadLetterResponse{
		DeadLetter: letterOf(), Headers: map[string]string{"Idempotency-Key": typed}, Payload: []byte("SECRET STREET"),
		Actions: []*deadletterv1.Action{{Action: "replay", Actor: typed, Reason: typed, Outcome: "failed", Detail: typed, CreatedAt: timestamppb.Now()}},
	}, nil
}

func (s *services) ReplayDeadLetter(_ context.Context, req *deadletterv1.ReplayDeadLetterRequest) (*deadletterv1.ReplayDeadLetterResponse, error) {
	if s.replaying != nil && !req.GetDryRun() {
		<-s.replaying
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.GetDryRun() {
		s.dry++
		return &deadletterv1.ReplayDeadLetterResponse{Report: &deadletterv1.Report{Outcome: "would", Detail: "would run the handler", Followers: 2}}, nil
	}
	if s.failWith != nil {
		return nil, s.failWith
	}
	s.replayed = append(s.replayed, req)
	return &deadletterv1.ReplayDeadLetterResponse{Report: &deadletterv1.Report{Outcome: "done", Detail: typed}}, nil
}

func (s *services) Examine(context.Context, *doctorv1.ExamineRequest) (*doctorv1.ExamineResponse, error) {
	return &doctorv1.ExamineResponse{
		OpenDeadLetters: 1, PendingMessages: 4, Consumers: []*doctorv1.Consumer{{Stream: "CMD", Name: "c", Pending: 5}, {Error: typed}},
		Rules: []*doctorv1.Rule{{Name: "a rule", Broken: true}},
	}, nil
}

func (s *services) LookUpOrders(_ context.Context, req *orderv1.LookUpOrdersRequest) (*orderv1.LookUpOrdersResponse, error) {
	resp := new(orderv1.LookUpOrdersResponse)
	for _, id := range req.GetOrderIds() {
		resp.Orders = append(resp.Orders, &orderv1.BookEntry{
			OrderId: id, ClientId: "storefront", IdempotencyKey: typed, Status: orderv1.OrderStatus_ORDER_STATUS_PENDING, Currency: "EUR", Total: 1250, CreatedAt: timestamppb.Now(),
		})
	}
	return resp, nil
}

func (s *services) CountUnfinished(context.Context, *orderv1.CountUnfinishedRequest) (*orderv1.CountUnfinishedResponse, error) {
	return &orderv1.CountUnfinishedResponse{Pending: 3, NeedsAttention: 1, OldestAt: timestamppb.Now()}, nil
}

func (s *services) FindOrders(context.Context, *trailv1.FindOrdersRequest) (*trailv1.FindOrdersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &trailv1.FindOrdersResponse{Matches: s.matches}, nil
}

func (s *services) ListEntries(_ context.Context, req *trailv1.ListEntriesRequest) (*trailv1.ListEntriesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.GetReveal() {
		s.revealed = append(s.revealed, req)
	}
	if req.GetOrderId() != orderID {
		return &trailv1.ListEntriesResponse{}, nil
	}
	return &trailv1.ListEntriesResponse{Entries: s.entries}, nil
}

func (s *services) ListReceipts(context.Context, *trailv1.ListReceiptsRequest) (*trailv1.ListReceiptsResponse, error) {
	return &trailv1.ListReceiptsResponse{}, nil
}

// world is a console with its services.
type world struct {
	t *testing.T
	*services
	url     string
	board   *live.Board
	sampler *live.Sampler
	server  *web.Server
}

// newWorld runs a console. silent names services that nobody runs.
func newWorld(t *testing.T, silent ...string) *world {
	t.Helper()
	w := &world{t: t, services: &services{}}
	server, err := grpcx.NewServer(grpcx.ServerConfig{
		Credentials: []string{"another-one"}, Operators: grpcx.Operators{Credentials: []string{operatorCredential}, Services: []string{
			"throughline.attention.v1.AttentionService", "throughline.deadletter.v1.DeadLetterService", "throughline.doctor.v1.DoctorService",
			"throughline.order.v1.OrderBookService", "throughline.trail.v1.TrailService",
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	attentionv1.RegisterAttentionServiceServer(server, w.services)
	deadletterv1.RegisterDeadLetterServiceServer(server, w.services)
	doctorv1.RegisterDoctorServiceServer(server, w.services)
	orderv1.RegisterOrderBookServiceServer(server, w.services)
	trailv1.RegisterTrailServiceServer(server, w.services)
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	addrs := make(map[string]string)
	for _, name := range operator.Names() {
		addrs[name] = ln.Addr().String()
	}
	for _, name := range silent {
		addrs[name] = "127.0.0.1:1"
	}
	asked, err := operator.Dial(addrs, operatorCredential, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = asked.Close() })
	w.board, w.sampler = live.NewBoard(nil), live.NewSampler(asked.Doctors, asked.Book)
	w.server = web.New(web.Config{
		Services: asked, Board: w.board, List: live.NewList(w.board, asked.Book), Sampler: w.sampler, Trail: asked.Trail(),
		Sessions: session.NewStore(credential, nil), Tries: session.NewTries(nil), JaegerURL: "https://jaeger.example/ui/",
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	})
	handler, err := w.server.Handler(map[string]http.Handler{"/healthz": http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(handler)
	t.Cleanup(ts.Close)
	w.url = ts.URL
	return w
}

// sample lets the console ask all services once.
func (w *world) sample() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	turned, done := w.sampler.Turned(), make(chan struct{})
	go func() {
		defer close(done)
		_ = w.sampler.Run(ctx)
	}()
	<-turned
	cancel()
	<-done
}

// answer is what the console said.
type answer struct {
	status int
	header http.Header
	body   string
}

// browser is somebody's browser: it keeps cookies and follows nothing by itself.
type browser struct {
	*world
	client *http.Client
	header http.Header
}

func (w *world) browser() *browser {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return &browser{world: w, header: http.Header{}, client: &http.Client{
		Jar: jar, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// loggedIn is the browser of Kim, who has logged in.
func (w *world) loggedIn() *browser {
	w.t.Helper()
	b := w.browser()
	if a := b.post("/login", url.Values{"name": {"Kim"}, "credential": {credential}}); a.status != http.StatusSeeOther {
		w.t.Fatalf("logging in: got %d %s, want 303", a.status, a.body)
	}
	return b
}

func (b *browser) do(method, path string, form url.Values) answer {
	b.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header = b.header.Clone()
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

func (b *browser) get(path string) answer {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil)
}

func (b *browser) post(path string, form url.Values) answer {
	b.t.Helper()
	return b.do(http.MethodPost, path, form)
}

var keyField = regexp.MustCompile(`name="key" value="([^"]+)"`)

// confirm opens a confirmation, and gives its key.
func (b *browser) confirm(path string) (key string, page answer) {
	b.t.Helper()
	page = b.get(path)
	found := keyField.FindStringSubmatch(page.body)
	if page.status != http.StatusOK || found == nil {
		b.t.Fatalf("confirmation %s: got %d %s, want a form with a key", path, page.status, page.body)
	}
	return found[1], page
}

// noLetter is the number of a dead letter that there is not.
const noLetter = 404

var errAway = status.Error(codes.Unavailable, "away")
