package deadletters

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
	deadletterv1 "github.com/throughline/throughline/proto/gen/throughline/deadletter/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

const (
	defaultPage = 100
	maxActor    = 200
	maxReason   = 1000
)

// Register lets a gRPC server answer about a service's dead letters. The server must ask for the operator credential.
func Register(s grpc.ServiceRegistrar, letters *inbox.DeadLetters) {
	deadletterv1.RegisterDeadLetterServiceServer(s, &server{letters: letters})
}

type server struct {
	deadletterv1.UnimplementedDeadLetterServiceServer
	letters *inbox.DeadLetters
}

// ListDeadLetters implements deadletterv1.DeadLetterServiceServer.
func (s *server) ListDeadLetters(ctx context.Context, req *deadletterv1.ListDeadLettersRequest) (*deadletterv1.ListDeadLettersResponse, error) {
	f := inbox.Filter{Consumer: req.GetConsumer(), Settled: req.GetIncludeSettled(), Limit: int(req.GetPageSize())}
	var err error
	if id := req.GetOrderId(); id != "" {
		if f.AggregateID, err = uuid.Parse(id); err != nil {
			return nil, invalid("order_id", "is not a UUID")
		}
	}
	if token := req.GetPageToken(); token != "" {
		if f.After, err = strconv.ParseInt(token, 10, 64); err != nil {
			return nil, invalid("page_token", "is none that was given")
		}
	}
	switch {
	case f.Limit < 0 || f.Limit > inbox.MaxLetters:
		return nil, invalid("page_size", fmt.Sprintf("must be 1 to %d", inbox.MaxLetters))
	case f.Limit == 0:
		f.Limit = defaultPage
	}
	letters, err := s.letters.List(ctx, f)
	if err != nil {
		return nil, told(err)
	}
	resp := &deadletterv1.ListDeadLettersResponse{}
	for i := range letters {
		resp.DeadLetters = append(resp.DeadLetters, render(&letters[i]))
	}
	if len(letters) == f.Limit {
		resp.NextPageToken = strconv.FormatInt(letters[len(letters)-1].ID, 10)
	}
	return resp, nil
}

// GetDeadLetter implements deadletterv1.DeadLetterServiceServer.
func (s *server) GetDeadLetter(ctx context.Context, req *deadletterv1.GetDeadLetterRequest) (*deadletterv1.GetDeadLetterResponse, error) {
	letter, actions, err := s.letters.Get(ctx, req.GetId())
	if err != nil {
		return nil, told(err)
	}
	resp := &deadletterv1.GetDeadLetterResponse{DeadLetter: render(&letter), Headers: make(map[string]string), Payload: letter.Payload}
	for name, values := range letter.Headers {
		if len(values) > 0 {
			resp.Headers[name] = values[0]
		}
	}
	for _, a := range actions {
		resp.Actions = append(resp.Actions, &deadletterv1.Action{
			Action: a.Action, Actor: a.Actor, Reason: a.Reason, Outcome: a.Outcome, Detail: a.Detail, CreatedAt: timestamppb.New(a.CreatedAt),
		})
	}
	return resp, nil
}

// ReplayDeadLetter implements deadletterv1.DeadLetterServiceServer.
func (s *server) ReplayDeadLetter(ctx context.Context, req *deadletterv1.ReplayDeadLetterRequest) (*deadletterv1.ReplayDeadLetterResponse, error) {
	report, err := act(ctx, s.letters.Replay, req)
	if err != nil {
		return nil, err
	}
	return &deadletterv1.ReplayDeadLetterResponse{Report: report}, nil
}

// DiscardDeadLetter implements deadletterv1.DeadLetterServiceServer.
func (s *server) DiscardDeadLetter(ctx context.Context, req *deadletterv1.DiscardDeadLetterRequest) (*deadletterv1.DiscardDeadLetterResponse, error) {
	report, err := act(ctx, s.letters.Discard, req)
	if err != nil {
		return nil, err
	}
	return &deadletterv1.DiscardDeadLetterResponse{Report: report}, nil
}

// order is either request to do something about a letter.
type order interface {
	GetId() int64
	GetDryRun() bool
	GetActor() string
	GetReason() string
}

func act(ctx context.Context, do func(context.Context, int64, inbox.Order) (inbox.Report, error), req order) (*deadletterv1.Report, error) {
	switch {
	case len(req.GetActor()) > maxActor:
		return nil, invalid("actor", fmt.Sprintf("is longer than %d bytes", maxActor))
	case len(req.GetReason()) > maxReason:
		return nil, invalid("reason", fmt.Sprintf("is longer than %d bytes", maxReason))
	}
	report, err := do(ctx, req.GetId(), inbox.Order{Actor: req.GetActor(), Reason: req.GetReason(), DryRun: req.GetDryRun()})
	if err != nil {
		return nil, told(err)
	}
	return &deadletterv1.Report{Outcome: string(report.Outcome), Detail: report.Detail, Followers: int32(report.Followers)}, nil
}

func render(l *inbox.Letter) *deadletterv1.DeadLetter {
	d := &deadletterv1.DeadLetter{
		Id: l.ID, Consumer: l.Consumer, MessageId: l.MessageID.String(), OrderId: l.AggregateID.String(), AggregateSeq: l.AggregateSeq,
		Subject: l.Subject, State: string(l.State), Error: l.Error, Attempts: l.Attempts, StreamSequence: l.StreamSequence,
		Type: header(l, messaging.HeaderCEType), StepName: header(l, messaging.HeaderStepName), Traceparent: header(l, messaging.HeaderTraceParent),
		StoredAt: stamp(&l.StoredAt), CreatedAt: stamp(&l.CreatedAt), SettledAt: stamp(l.SettledAt),
	}
	return d
}

func header(l *inbox.Letter, name string) string {
	if values := l.Headers[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func stamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

// told gives what a caller is told of an error.
func told(err error) error {
	switch {
	case errors.Is(err, inbox.ErrNoLetter):
		return grpcx.Error(grpcx.UnknownName, "the service has no such dead letter")
	case errors.Is(err, inbox.ErrAnonymous):
		return invalid("actor", "and reason are both needed")
	case postgres.Classify(err) == postgres.Unavailable:
		return grpcx.Error(grpcx.Unavailable, "the service's database cannot be used now")
	default:
		return err
	}
}

func invalid(path, detail string) error {
	return grpcx.Error(grpcx.RequestInvalid, path+" "+detail, grpcx.WithViolations(grpcx.Violation{Path: path, Detail: detail}))
}
