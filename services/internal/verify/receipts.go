package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
)

var errNoReceiver = errors.New("no service of that name is asked")

// receipts asks the receivers of acknowledged messages what became of them: which their consumers have still to deal with, and which are missing.
// Who cannot be asked is a gap.
func (r *run) receipts(ctx context.Context, acknowledged []*verifyv1.Message) (waiting []*verifyv1.Message, missing []*verifyv1.MessageFinding) {
	by := make(map[string][]*verifyv1.Message)
	for _, m := range acknowledged {
		service := receiverOf(m.GetSubject())
		by[service] = append(by[service], m)
	}
	for _, service := range slices.Sorted(maps.Keys(by)) {
		client := r.services[service]
		if client == nil {
			r.gap(service, "receipts", errNoReceiver)
			continue
		}
		for messages := range slices.Chunk(by[service], MaxMessages) {
			resp, err := ask(ctx, r, client.CheckReceipts, &verifyv1.CheckReceiptsRequest{Messages: messages})
			if err == nil && len(resp.GetReceipts()) != len(messages) {
				err = fmt.Errorf("asked about %d messages, told of %d", len(messages), len(resp.GetReceipts()))
			}
			if err != nil {
				r.gap(service, "receipts", err)
				continue
			}
			for i, receipt := range resp.GetReceipts() {
				switch receipt.GetState() {
				case verifyv1.ReceiptState_RECEIPT_STATE_WAITING:
					waiting = append(waiting, messages[i])
				case verifyv1.ReceiptState_RECEIPT_STATE_MISSING:
					missing = append(missing, &verifyv1.MessageFinding{Message: messages[i], Rule: string(InboxMissing), Detail: receipt.GetDetail()})
				case verifyv1.ReceiptState_RECEIPT_STATE_NOT_TAKEN:
					missing = append(missing, &verifyv1.MessageFinding{
						Message: messages[i], Rule: string(InboxMissing), Detail: "no consumer of " + service + " takes its subject",
					})
				default:
				}
			}
		}
	}
	return waiting, missing
}

// receiverOf is the service that a command or a reply is for: the second word of its subject.
func receiverOf(subject string) string {
	_, rest, _ := strings.Cut(subject, ".")
	service, _, _ := strings.Cut(rest, ".")
	return service
}

func timestampOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
