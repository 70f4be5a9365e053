package provider

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/stripe/stripe-go/v82"

	"github.com/throughline/throughline/pkg/participant"
)

// request is one that is under way. What comes of it goes on record with the attempt that made it.
type request struct {
	ctx       context.Context //nolint:containedctx // it is that of one request, and lives as long
	operation string
	key       string // the idempotency key; empty for a question
	reference string // the id of what is asked about; empty where it is not known yet
	began     time.Time
}

func write(ctx context.Context, operation string, key uuid.UUID, id string) request {
	return request{ctx, operation, key.String(), id, time.Now()}
}

func question(ctx context.Context, operation, id string) request {
	return request{ctx, operation, "", id, time.Now()}
}

// note puts the request on record. answered is the answer to a success, err what [Payment.fail] has made of anything else.
func (r request) note(answered *stripe.APIResponse, id string, err error) {
	x := participant.Exchange{Operation: r.operation, Key: r.key, Reference: r.reference, Began: r.began, Took: time.Since(r.began)}
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
			x.Reference = e.Intent.ID
		}
	}
	participant.Note(r.ctx, x)
}
