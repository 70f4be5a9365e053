package httpapi

import (
	"context"
	"strconv"
	"strings"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/gateway/internal/grpcapi"
)

// said is what a request says where grpc-gateway does not look, or would not read it right.
type said struct {
	// key is the idempotency key in the path. It may hold slashes, which grpc-gateway cannot have within a part.
	key string
	// wait is how many seconds the caller prefers to wait.
	wait int32
}

type saidKey struct{}

// byHTTP is the API as grpc-gateway calls it.
type byHTTP struct{ *grpcapi.Server }

func (s byHTTP) GetOrder(ctx context.Context, req *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
	if r, ok := ctx.Value(saidKey{}).(said); ok {
		req.WaitSeconds = r.wait
	}
	return s.Server.GetOrder(ctx, req)
}

func (s byHTTP) GetIdempotencyKey(ctx context.Context, req *orderv1.GetIdempotencyKeyRequest) (*orderv1.GetIdempotencyKeyResponse, error) {
	if r, ok := ctx.Value(saidKey{}).(said); ok {
		req.Key = r.key
	}
	return s.Server.GetIdempotencyKey(ctx, req)
}

// maxWaitSeconds is above every wait that is granted, and keeps larger numbers from wrapping.
const maxWaitSeconds = 1 << 20

// preferredWait answers the seconds of the preference "wait" (RFC 7240), of which the first counts; 0 when there is none.
// What cannot be read is passed over, as the RFC demands of preferences that are not known.
func preferredWait(lines []string) int32 {
	for _, line := range lines {
		for _, preference := range splitOutsideQuotes(line, ',') {
			name, value, _ := strings.Cut(splitOutsideQuotes(preference, ';')[0], "=")
			if !strings.EqualFold(strings.Trim(name, " \t"), "wait") {
				continue
			}
			value = strings.Trim(value, " \t")
			if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
				value = value[1 : n-1]
			}
			return seconds(value)
		}
	}
	return 0
}

// seconds reads digits and nothing else.
func seconds(s string) int32 {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return maxWaitSeconds // it has more digits
	}
	return int32(min(n, maxWaitSeconds))
}

// splitOutsideQuotes splits at a separator that is not within a quoted string (RFC 9110 section 5.6.4). It answers at least one part.
func splitOutsideQuotes(s string, sep byte) []string {
	var all []string
	from, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == sep && !quoted:
			all = append(all, s[from:i])
			from = i + 1
		}
	}
	return append(all, s[from:])
}
