package service

import (
	"context"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
)

// batches makes one span of a batch, where [otelpgx.Tracer] makes one more for each of its statements. Those are made when the answers are read, and
// the answer to a batch comes whole: they would all begin after the fact and take nothing, and be half of all spans of an order. What has
// failed is told all the same.
type batches struct{ *otelpgx.Tracer }

// TraceBatchQuery implements pgx.BatchTracer.
func (b batches) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	if data.Err != nil {
		b.Tracer.TraceBatchQuery(ctx, conn, data)
	}
}
