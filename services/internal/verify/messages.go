package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
)

// maxOfOrder bounds the messages that are told of one order, so that an answer about [MaxHoldings] orders stays below 1 MB.
const maxOfOrder = 200

// CheckMessages implements verifyv1.VerifyServiceServer.
func (s *Server) CheckMessages(ctx context.Context, req *verifyv1.CheckMessagesRequest) (*verifyv1.CheckMessagesResponse, error) {
	resp := new(verifyv1.CheckMessagesResponse)
	var list []outbox.Whereabouts
	var err error
	if len(req.GetOrderIds()) > 0 {
		list, err = s.about(ctx, req.GetOrderIds())
	} else {
		list, err = s.page(ctx, req, resp)
	}
	if err != nil {
		return nil, told(err)
	}
	resp.LookedAt = int64(len(list))
	events := make(map[string][]messaging.Place) // by stream
	at := make(map[messaging.Place]*outbox.Whereabouts)
	for i := range list {
		w := &list[i]
		switch {
		case w.Lost():
			resp.Findings = append(resp.Findings, finding(w, OutboxLost, "it is neither pending, nor is it on record where it went"))
		case w.Pending:
			resp.Pending = append(resp.Pending, messageOf(w))
		case s.kept[w.Stream]:
			place := messaging.Place{ID: w.ID, Sequence: w.Sequence}
			events[w.Stream] = append(events[w.Stream], place)
			at[place] = w
		default:
			resp.Acknowledged = append(resp.Acknowledged, messageOf(w))
		}
	}
	for stream, places := range events {
		missing, err := s.cfg.Conn.MissingAt(ctx, stream, messaging.EventPrefix+s.cfg.Service+".>", places)
		if err != nil {
			return nil, told(err)
		}
		for place, what := range missing {
			resp.Findings = append(resp.Findings, finding(at[place], StreamLost,
				fmt.Sprintf("stream %s has acknowledged it at %d, and does not have it: %s", stream, place.Sequence, what)))
		}
	}
	return resp, nil
}

// page reads the messages of a span of time, and says in resp where the next page begins.
func (s *Server) page(ctx context.Context, req *verifyv1.CheckMessagesRequest, resp *verifyv1.CheckMessagesResponse) ([]outbox.Whereabouts, error) {
	after, before := uuid.Nil, uuid.Max
	if req.GetFrom() != nil {
		after = keys.MessageBound(req.GetFrom().AsTime())
	}
	if req.GetTo() != nil {
		before = keys.MessageBound(req.GetTo().AsTime())
	}
	if token := req.GetPageToken(); token != "" {
		var err error
		if after, err = uuid.Parse(token); err != nil {
			return nil, BadToken()
		}
	}
	list, err := outbox.Audit(ctx, s.cfg.Pool, after, before, MaxMessages)
	if len(list) == MaxMessages {
		resp.NextPageToken = list[len(list)-1].ID.String()
	}
	return list, err
}

// about reads the messages about some orders.
func (s *Server) about(ctx context.Context, orders []string) ([]outbox.Whereabouts, error) {
	if n := len(orders); n > MaxHoldings {
		return nil, tooMany("order_ids", n, MaxHoldings)
	}
	ids, err := ParseIDs(orders)
	if err != nil {
		return nil, err
	}
	return outbox.AuditOf(ctx, s.cfg.Pool, ids, maxOfOrder)
}

func messageOf(w *outbox.Whereabouts) *verifyv1.Message {
	return &verifyv1.Message{
		MessageId: w.ID.String(), OrderId: w.AggregateID.String(), Subject: w.Subject, WrittenAt: timestamppb.New(w.WrittenAt),
		Stream: w.Stream, Sequence: w.Sequence,
	}
}

func finding(w *outbox.Whereabouts, rule Rule, detail string) *verifyv1.MessageFinding {
	return &verifyv1.MessageFinding{Message: messageOf(w), Rule: string(rule), Detail: detail}
}

// inboxMargin is how long before they may be gone inbox rows are not counted on any more.
const inboxMargin = time.Hour

// CheckReceipts implements verifyv1.VerifyServiceServer.
func (s *Server) CheckReceipts(ctx context.Context, req *verifyv1.CheckReceiptsRequest) (*verifyv1.CheckReceiptsResponse, error) {
	messages := req.GetMessages()
	if n := len(messages); n > MaxMessages {
		return nil, tooMany("messages", n, MaxMessages)
	}
	resp := &verifyv1.CheckReceiptsResponse{Receipts: make([]*verifyv1.Receipt, len(messages))}
	for i := range resp.Receipts {
		resp.Receipts[i] = &verifyv1.Receipt{State: verifyv1.ReceiptState_RECEIPT_STATE_NOT_TAKEN}
	}
	for i := range s.cfg.Consumers {
		if err := s.receipts(ctx, &s.cfg.Consumers[i], messages, resp.Receipts); err != nil {
			return nil, told(err)
		}
	}
	return resp, nil
}

// receipts fills in what became of the messages that a consumer takes. How far it is is asked before what it has: whatever it has
// acknowledged by then, it has dealt with.
func (s *Server) receipts(ctx context.Context, c *messaging.ConsumerConfig, messages []*verifyv1.Message, receipts []*verifyv1.Receipt) error {
	taken := make(map[int]uuid.UUID)
	var ids []uuid.UUID
	for i, m := range messages {
		if m.GetStream() != c.Stream || !c.Takes(m.GetSubject()) {
			continue
		}
		id, err := uuid.Parse(m.GetMessageId())
		if err != nil {
			return invalid(fmt.Sprintf("messages[%d].message_id", i), "is no message id")
		}
		taken[i] = id
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil
	}
	progress, err := s.cfg.Conn.ProgressOf(ctx, c.Stream, c.Name)
	if err != nil {
		return err
	}
	received, letters, err := inbox.Audit(ctx, s.cfg.Pool, c.Name, ids)
	if err != nil {
		return err
	}
	for i, id := range taken {
		m, r := messages[i], receipts[i]
		switch {
		case received[id]:
			r.State = verifyv1.ReceiptState_RECEIPT_STATE_RECEIVED
		case letters[id]:
			r.State = verifyv1.ReceiptState_RECEIPT_STATE_DEAD_LETTER
		case time.Since(m.GetWrittenAt().AsTime()) > s.cfg.InboxTTL-inboxMargin:
			r.State = verifyv1.ReceiptState_RECEIPT_STATE_UNSPECIFIED // what was known of it may have expired
		case m.GetSequence() > progress.Last:
			r.State = verifyv1.ReceiptState_RECEIPT_STATE_MISSING
			r.Detail = fmt.Sprintf("%s has no row of it, and stream %s, which has acknowledged it at %d, ends at %d", c.Name, c.Stream, m.GetSequence(), progress.Last)
		case m.GetSequence() <= progress.Floor:
			r.State = verifyv1.ReceiptState_RECEIPT_STATE_MISSING
			r.Detail = fmt.Sprintf("%s has acknowledged stream %s up to %d, this message is at %d, and there is no row of it", c.Name, c.Stream, progress.Floor, m.GetSequence())
		default:
			r.State = verifyv1.ReceiptState_RECEIPT_STATE_WAITING
		}
	}
	return nil
}
