package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/telemetry"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/gateway/internal/grpcapi"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// Handler serves the public HTTP API, and what is operated by HTTP beside it.
type Handler struct {
	api    *grpcapi.Server
	mux    *runtime.ServeMux
	routes []route
	ops    map[string]http.Handler
	logger *slog.Logger
}

// NewHandler makes a Handler that calls api in process. ops are served, to GET and HEAD, at exactly their paths. A nil logger logs
// nothing.
func NewHandler(ctx context.Context, api *grpcapi.Server, ops map[string]http.Handler, logger *slog.Logger) (*Handler, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{api: api, routes: routes(), ops: ops, logger: logger}
	h.mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler{}),
		// Headers reach the API by grpcapi.Headers only, and answers reach the caller by this package only.
		runtime.WithIncomingHeaderMatcher(noHeader),
		runtime.WithOutgoingHeaderMatcher(noHeader),
		runtime.WithOutgoingTrailerMatcher(noHeader),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithWriteContentLength(),
		runtime.WithForwardResponseOption(describe),
		runtime.WithForwardResponseRewriter(rewrite),
		runtime.WithErrorHandler(h.gatewayError),
		runtime.WithRoutingErrorHandler(h.routingError),
	)
	if err := orderv1.RegisterOrderServiceHandlerServer(ctx, h.mux, byHTTP{api}); err != nil {
		return nil, fmt.Errorf("registering the HTTP API: %w", err)
	}
	return h, nil
}

func noHeader(string) (string, bool) { return "", false }

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sw := &statusWriter{ResponseWriter: w}
	defer h.recovered(sw, r)
	sw.Header().Set("X-Content-Type-Options", "nosniff")
	if op, ok := h.ops[r.URL.Path]; ok {
		r.Pattern = r.URL.Path
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.methodNotAllowed(sw, r, []string{http.MethodGet, http.MethodHead})
			return
		}
		op.ServeHTTP(sw, r)
		return
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet // net/http leaves the body out
	}
	path := parts(r.URL.EscapedPath())
	if events := eventsRoute(); matches(events.pattern, path) {
		r.Pattern = events.method + " " + events.pattern
		if method != events.method {
			h.methodNotAllowed(sw, r, []string{http.MethodGet, http.MethodHead})
			return
		}
		h.events(sw, r, path[3])
		return
	}
	rt, allow := match(h.routes, method, path)
	switch {
	case rt == nil && len(allow) > 0:
		h.methodNotAllowed(sw, r, allow)
		return
	case rt == nil:
		writeError(sw, r, h.logger, grpcx.Error(grpcx.RouteNotFound, "nothing is served at this path"))
		return
	}
	// The name of the span and of the metrics.
	r.Pattern = rt.method + " " + rt.pattern
	inner, err := h.prepare(sw, r, rt, path)
	if err != nil {
		writeError(sw, r, h.logger, err)
		return
	}
	sw.success = rt.status
	h.mux.ServeHTTP(sw, inner)
}

// prepare makes the checks, in the order of the package comment, and answers the request that grpc-gateway sees: the path, the
// query and the body, and no header of the caller.
func (h *Handler) prepare(w http.ResponseWriter, r *http.Request, rt *route, path []string) (*http.Request, error) {
	ctx, err := h.api.Admit(r.Context(), rt.rpc, grpcapi.Headers{
		Authorization:  r.Header.Values("Authorization"),
		IdempotencyKey: r.Header.Values("Idempotency-Key"),
	})
	if err != nil {
		return nil, err
	}
	if err := checkQuery(r.URL.RawQuery, rt.query); err != nil {
		return nil, err
	}
	var data []byte
	if rt.method == http.MethodPost {
		if data, err = h.body(w, r, rt); err != nil {
			return nil, err
		}
	}
	also := said{wait: preferredWait(r.Header.Values("Prefer"))}
	if rt.keyInPath {
		also.key, path[len(path)-1] = path[len(path)-1], "-"
	}
	ctx = context.WithValue(ctx, saidKey{}, also)
	inner := &http.Request{
		Method: rt.method, Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
		// The path as it was matched: decoded once, whatever its sender chose to encode.
		URL:    &url.URL{Path: strings.Join(path, "/"), RawQuery: r.URL.RawQuery},
		Header: http.Header{}, Body: newBody(data, pathVariables(rt.pattern)), ContentLength: int64(len(data)),
		Pattern: r.Pattern,
	}
	return inner.WithContext(grpcapi.WithAnswer(ctx, new(grpcapi.Answer))), nil
}

func (h *Handler) body(w http.ResponseWriter, r *http.Request, rt *route) ([]byte, error) {
	if rt.emptyBody && r.ContentLength == 0 {
		return []byte("{}"), nil
	}
	if err := checkMedia(r.Header); err != nil {
		return nil, err
	}
	return readBody(w, r)
}

// describe sets the headers of a success.
func describe(ctx context.Context, w http.ResponseWriter, m proto.Message) error {
	h, a := w.Header(), grpcapi.AnswerFrom(ctx)
	h.Set("Cache-Control", "no-store")
	if created, ok := m.(interface{ GetOrder() *orderv1.Order }); ok && isCreate(ctx) {
		h.Set("Location", "/v1/orders/"+url.PathEscape(created.GetOrder().GetOrderId()))
	}
	if a == nil {
		return nil
	}
	if a.Replayed {
		h.Set("Idempotency-Replayed", "true")
	}
	if a.Expired {
		h.Set("Idempotency-Key-Expired", "true")
		if sw, ok := w.(*statusWriter); ok {
			sw.success = http.StatusOK // nothing was created, now or in what is shown
		}
	}
	if a.Waited > 0 {
		h.Set("Preference-Applied", "wait="+strconv.Itoa(int(a.Waited.Seconds())))
	}
	return nil
}

func isCreate(ctx context.Context) bool {
	method, ok := runtime.RPCMethod(ctx)
	return ok && method == orderv1.OrderService_CreateOrder_FullMethodName
}

// rewrite serves stored bytes as they are.
func rewrite(ctx context.Context, m proto.Message) (any, error) {
	if a := grpcapi.AnswerFrom(ctx); a != nil && a.Body != nil {
		return storedBody(a.Body), nil
	}
	return m, nil
}

// gatewayError answers the errors of the API, of reading and of rendering.
func (h *Handler) gatewayError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter,
	r *http.Request, err error,
) {
	if b, ok := r.Body.(*body); ok && b.err != nil {
		err = b.err
	}
	var withStatus *runtime.HTTPStatusError
	if errors.As(err, &withStatus) && withStatus.HTTPStatus < http.StatusInternalServerError {
		err = grpcx.Error(grpcx.RequestMalformed, "the request cannot be read")
	}
	if grpcx.ReasonOf(err) == "" && status.Code(err) == codes.InvalidArgument {
		// A parameter that grpc-gateway itself could not read. Its text names Go types.
		err = grpcx.Error(grpcx.RequestMalformed, "the request cannot be read")
	}
	writeError(w, r, h.logger, err)
}

// routingError answers where grpc-gateway finds no route, which is where this package finds none either.
func (h *Handler) routingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter,
	r *http.Request, _ int,
) {
	writeError(w, r, h.logger, grpcx.Error(grpcx.RouteNotFound, "nothing is served at this path"))
}

func (h *Handler) methodNotAllowed(w http.ResponseWriter, r *http.Request, allow []string) {
	list := strings.Join(allow, ", ")
	w.Header().Set("Allow", list)
	writeError(w, r, h.logger, grpcx.Error(grpcx.MethodNotAllowed, "this path has "+list))
}

// recovered turns a panic into an answer, if none has begun.
func (h *Handler) recovered(w *statusWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // net/http's own way to cut a connection
	}
	h.logger.ErrorContext(r.Context(), "answering a request panicked", telemetry.LogMethod, r.Method,
		telemetry.LogPath, r.Pattern, telemetry.LogError, fmt.Sprint(p), "stack", string(debug.Stack()))
	if w.wrote {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	writeError(w, r, h.logger, grpcx.Error(grpcx.Internal, "internal error"))
}

// statusWriter gives a success its status at the first byte: grpc-gateway writes none, and an error on the way to the
// first byte must still be able to set another.
type statusWriter struct {
	http.ResponseWriter
	success int
	wrote   bool
}

func (w *statusWriter) WriteHeader(code int) {
	w.wrote = true
	w.ResponseWriter.WriteHeader(code)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if !w.wrote && w.success != 0 {
		w.WriteHeader(w.success)
	}
	w.wrote = true
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
