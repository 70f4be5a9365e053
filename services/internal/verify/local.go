package verify

import (
	"context"

	"google.golang.org/grpc"

	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
)

// Local gives a client that calls the server in its own process.
func (s *Server) Local() verifyv1.VerifyServiceClient { return local{s} }

type local struct{ server *Server }

func (l local) ListOrders(ctx context.Context, req *verifyv1.ListOrdersRequest, _ ...grpc.CallOption) (*verifyv1.ListOrdersResponse, error) {
	return l.server.ListOrders(ctx, req)
}

func (l local) ListHoldings(ctx context.Context, req *verifyv1.ListHoldingsRequest, _ ...grpc.CallOption) (*verifyv1.ListHoldingsResponse, error) {
	return l.server.ListHoldings(ctx, req)
}

func (l local) CheckMessages(ctx context.Context, req *verifyv1.CheckMessagesRequest, _ ...grpc.CallOption) (*verifyv1.CheckMessagesResponse, error) {
	return l.server.CheckMessages(ctx, req)
}

func (l local) CheckReceipts(ctx context.Context, req *verifyv1.CheckReceiptsRequest, _ ...grpc.CallOption) (*verifyv1.CheckReceiptsResponse, error) {
	return l.server.CheckReceipts(ctx, req)
}
