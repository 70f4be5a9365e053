package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
	doctorv1 "github.com/throughline/throughline/proto/gen/throughline/doctor/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// Patient is what is examined.
type Patient struct {
	Pool *pgxpool.Pool
	Conn *messaging.Conn
	// Rules are those of the settings.
	Rules []Rule
	// InboxTTL and BatchTime are what streams and consumers are compared with, as they really are.
	InboxTTL, BatchTime time.Duration
	Streams             []messaging.Stream
	Consumers           []messaging.ConsumerConfig
	Tables              []Table
}

// Register lets a gRPC server examine a service. The server must ask for the operator credential.
func Register(s grpc.ServiceRegistrar, p Patient) {
	doctorv1.RegisterDoctorServiceServer(s, &server{patient: p})
}

type server struct {
	doctorv1.UnimplementedDoctorServiceServer
	patient Patient
}

const selectCounts = `
SELECT (SELECT count(*) FROM dead_letter WHERE settled_at IS NULL),
       (SELECT count(*) FROM outbox),
       (SELECT count(*) FROM outbox WHERE refusals > 0 AND set_aside_at IS NOT NULL),
       coalesce((SELECT now() - created_at FROM outbox WHERE set_aside_at IS NULL ORDER BY message_id LIMIT 1), interval '0')`

// Examine implements doctorv1.DoctorServiceServer.
func (s *server) Examine(ctx context.Context, req *doctorv1.ExamineRequest) (*doctorv1.ExamineResponse, error) {
	resp := &doctorv1.ExamineResponse{}
	rules, consumers := s.patient.live(ctx)
	resp.Consumers = consumers
	for _, r := range append(rules, s.patient.Rules...) {
		resp.Rules = append(resp.Rules, &doctorv1.Rule{
			Name: r.Name, Shorter: r.Shorter, ShorterValue: durationpb.New(r.ShorterValue),
			Longer: r.Longer, LongerValue: durationpb.New(r.LongerValue), Broken: r.Broken(),
		})
	}
	var oldest time.Duration
	err := s.patient.Pool.QueryRow(ctx, selectCounts).Scan(&resp.OpenDeadLetters, &resp.PendingMessages, &resp.SetAsideMessages, &oldest)
	if err != nil {
		return nil, told(fmt.Errorf("counting what is open: %w", err))
	}
	resp.OldestPending = durationpb.New(oldest)
	if req.GetWithoutTables() {
		return resp, nil
	}
	growth, err := grow(ctx, s.patient.Pool, s.patient.Tables)
	if err != nil {
		return nil, told(err)
	}
	for _, g := range growth {
		resp.Tables = append(resp.Tables, &doctorv1.Table{
			Name: g.Name, Rows: g.Rows, Bytes: g.Bytes, RowsPerSecond: g.RowsPerSec, KeptFor: durationpb.New(g.KeptFor),
			ExpectedRows: g.ExpectedRows, ExpectedBytes: g.ExpectedBytes,
		})
	}
	return resp, nil
}

func told(err error) error {
	if postgres.Classify(err) == postgres.Unavailable {
		return grpcx.Error(grpcx.Unavailable, "the service's database cannot be used now")
	}
	return err
}

// live looks at streams and consumers as they are at the broker. What cannot be asked is said with the consumers.
func (p *Patient) live(ctx context.Context) (rules []Rule, consumers []*doctorv1.Consumer) {
	js := p.Conn.JetStream()
	if js == nil || !p.Conn.Session().Connected {
		return nil, []*doctorv1.Consumer{{Error: "the broker is away"}}
	}
	for _, want := range p.Streams {
		stream, err := js.Stream(ctx, want.Name)
		if err != nil {
			consumers = append(consumers, &doctorv1.Consumer{Stream: want.Name, Error: err.Error()})
			continue
		}
		cfg := stream.CachedInfo().Config
		if cfg.Retention == jetstream.LimitsPolicy {
			rules = append(rules, Rule{
				"inbox rows outlive events", "max age of stream " + want.Name + " at the broker", cfg.MaxAge, "THROUGHLINE_INBOX_TTL", p.InboxTTL,
			})
		}
	}
	for _, c := range p.Consumers {
		told := &doctorv1.Consumer{Stream: c.Stream, Name: c.Name}
		consumers = append(consumers, told)
		consumer, err := js.Consumer(ctx, c.Stream, c.Name)
		if err != nil {
			told.Error = err.Error()
			continue
		}
		info := consumer.CachedInfo()
		rules = append(rules, Rule{
			"no message is delivered again while it is in hand", BatchSetting, p.BatchTime,
			"ack wait of consumer " + c.Name + " at the broker", info.Config.AckWait,
		})
		told.Pending, told.Unacknowledged, told.Redelivered = info.NumPending, int64(info.NumAckPending), int64(info.NumRedelivered)
		if floor, err := p.Conn.AckFloor(ctx, c.Stream, c.Name); err == nil {
			told.Lag = durationpb.New(info.TimeStamp.Sub(floor).Round(time.Millisecond))
		}
	}
	return rules, consumers
}

// BatchSetting names what bounds the time of a batch.
const BatchSetting = "time limit of a database statement"
