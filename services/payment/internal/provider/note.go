package provider

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"
	"github.com/stripe/stripe-go/v82"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/telemetry"
)

// request is one that is under way. What comes of it goes on record with the attempt that made it, and on its span.
type request struct {
	*telemetry.Call

	ctx context.Context //nolint:containedctx // it is that of one request, which is made with it, and lives as long
}

func write(ctx context.Context, operation string, key uuid.UUID, id string) request {
	return begin(ctx, &telemetry.Call{Operation: operation, Key: key.String(), Reference: id})
}

func question(ctx context.Context, operation, id string) request {
	return begin(ctx, &telemetry.Call{Operation: operation, Reference: id})
}

func begin(ctx context.Context, call *telemetry.Call) request { return request{call, call.Begin(ctx)} }

// note puts the request on record. answered is the answer to a success, about what has that id and status; err is what [Payment.fail] has made of
// anything else.
func (r request) note(answered *stripe.APIResponse, id, status string, err error) {
	x := participant.Exchange{Operation: r.Operation, Key: r.Key, Reference: r.Reference, Answer: status}
	if id != "" {
		x.Reference = id
	}
	switch {
	case answered != nil:
		x.Status = answered.StatusCode
	case err == nil:
		x.Status = http.StatusOK // lists do not show theirs
	}
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Status > 0 {
			x.Status = e.Status
		}
		x.Error = e.text
		if e.Code != "" {
			x.Error = e.Code + ": " + e.text
		}
		if e.Intent != nil {
			x.Reference, x.Answer = e.Intent.ID, string(e.Intent.Status)
		}
	}
	x.Began, x.Took = r.Done(x.Answer, x.Reference, x.Error)
	participant.Note(r.ctx, x)
}
