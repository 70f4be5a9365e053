package republish

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	outboxv1 "github.com/throughline/throughline/proto/gen/throughline/outbox/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

const (
	defaultPage = 100
	maxActor    = 200
	maxReason   = 1000
)

// Register lets a gRPC server answer about what a service has sent. The server must ask for the operator credential.
func Register(s grpc.ServiceRegistrar, archive *outbox.Archive) {
	outboxv1.RegisterOutboxServiceServer(s, &server{archive: archive})
}

type server struct {
	outboxv1.UnimplementedOutboxServiceServer
	archive *outbox.Archive
}

// ListSent implements outboxv1.OutboxServiceServer.
func (s *server) ListSent(ctx context.Context, req *outboxv1.ListSentRequest) (*outboxv1.ListSentResponse, error) {
	selection, err := parse(req.GetSelection(), req.GetPageSize(), req.GetPageToken())
	if err != nil {
		return nil, err
	}
	found, err := s.archive.Find(ctx, selection)
	if err != nil {
		return nil, told(err)
	}
	resp := &outboxv1.ListSentResponse{}
	for i := range found {
		resp.Messages = append(resp.Messages, render(&found[i]))
	}
	if len(found) == selection.Limit {
		resp.NextPageToken = token(&found[len(found)-1])
	}
	return resp, nil
}

// Republish implements outboxv1.OutboxServiceServer.
func (s *server) Republish(ctx context.Context, req *outboxv1.RepublishRequest) (*outboxv1.RepublishResponse, error) {
	selection, err := parse(req.GetSelection(), req.GetPageSize(), req.GetPageToken())
	switch {
	case err != nil:
		return nil, err
	case req.GetActor() == "" || len(req.GetActor()) > maxActor:
		return nil, invalid("actor", fmt.Sprintf("must have 1 to %d bytes", maxActor))
	case req.GetReason() == "" || len(req.GetReason()) > maxReason:
		return nil, invalid("reason", fmt.Sprintf("must have 1 to %d bytes", maxReason))
	}
	results, err := s.archive.Republish(ctx, selection, req.GetActor(), req.GetReason())
	if err != nil {
		return nil, told(err)
	}
	resp := &outboxv1.RepublishResponse{}
	for i := range results {
		m := render(&results[i].Sent)
		m.NewSequence = results[i].NewSequence
		if err := results[i].Err; err != nil {
			m.Error = err.Error()
		}
		resp.Messages = append(resp.Messages, m)
	}
	if len(results) == selection.Limit {
		resp.NextPageToken = token(&results[len(results)-1].Sent)
	}
	return resp, nil
}

func parse(s *outboxv1.Selection, size int32, pageToken string) (outbox.Selection, error) {
	selection := outbox.Selection{
		From: at(s.GetFrom()), To: at(s.GetTo()), Stream: s.GetStream(), First: s.GetFirstSequence(), Last: s.GetLastSequence(), Limit: int(size),
	}
	var err error
	if id := s.GetOrderId(); id != "" {
		if selection.AggregateID, err = uuid.Parse(id); err != nil {
			return selection, invalid("selection.order_id", "is not a UUID")
		}
	}
	if selection.Limit == 0 {
		selection.Limit = defaultPage
	}
	if pageToken != "" {
		micros, id, _ := strings.Cut(pageToken, "_")
		n, err := strconv.ParseInt(micros, 10, 64)
		if err != nil {
			return selection, invalid("page_token", "is none that was given")
		}
		selection.After.CreatedAt = time.UnixMicro(n)
		if selection.After.MessageID, err = uuid.Parse(id); err != nil {
			return selection, invalid("page_token", "is none that was given")
		}
	}
	return selection, nil
}

func token(s *outbox.Sent) string {
	c := s.Cursor()
	return strconv.FormatInt(c.CreatedAt.UnixMicro(), 10) + "_" + c.MessageID.String()
}

func at(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func render(s *outbox.Sent) *outboxv1.SentMessage {
	m := &outboxv1.SentMessage{
		MessageId: s.ID.String(), OrderId: s.AggregateID.String(), AggregateSeq: s.AggregateSeq, Subject: s.Subject, Type: s.Type,
		WrittenAt: timestamppb.New(s.WrittenAt), Stream: s.Stream, StreamSequence: s.Sequence,
	}
	if !s.SentAt.IsZero() {
		m.SentAt = timestamppb.New(s.SentAt)
	}
	switch {
	case s.Pending:
		m.Skipped = "pending"
	case s.Expired:
		m.Skipped = "expired"
	}
	return m
}

// told gives what a caller is told of an error.
func told(err error) error {
	switch {
	case errors.Is(err, outbox.ErrSelection):
		return invalid("selection", err.Error())
	case errors.Is(err, messaging.ErrUnavailable):
		return grpcx.Error(grpcx.Unavailable, "the broker cannot be used now")
	case postgres.Classify(err) == postgres.Unavailable:
		return grpcx.Error(grpcx.Unavailable, "the service's database cannot be used now")
	default:
		return err
	}
}

func invalid(path, detail string) error {
	return grpcx.Error(grpcx.RequestInvalid, path+": "+detail, grpcx.WithViolations(grpcx.Violation{Path: path, Detail: detail}))
}
