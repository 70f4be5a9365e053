package grpcapi_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/idempotency"
	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/pkg/saga"
	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
	"github.com/throughline/throughline/services/order/internal/grpcapi"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// TestVerifyListsOrders: lately are those with a message since then, and those that are overdue; pages cover each of them.
func TestVerifyListsOrders(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, outbox.Migrations(), inbox.Migrations(), saga.Migrations(), idempotency.Migrations(), postgres.Migrations())
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	const all, lately, overdue = 1700, 1600, 700 // more than a page of each
	exec(`INSERT INTO customer_order (order_id, client_id, idempotency_key, status, currency, total, request, request_hash, request_version, created_at, updated_at)
	      SELECT gen_random_uuid(), 'c', n::text, 'PENDING', 'EUR', n, '', '', 1, now(), now() FROM generate_series(1, $1::integer) n`, all)
	exec(`INSERT INTO saga_instance (saga_id, name, definition_version, definition_hash, idempotency_key, status, state, data)
	      SELECT order_id, 'place-order', 1, '', idempotency_key, 'running', '{"steps":[{"name":"a","phase":"sent","due":"2020-01-01T00:00:00Z"}]}', '' FROM customer_order`)
	rows, err := pool.Query(t.Context(), `SELECT order_id FROM customer_order ORDER BY order_no`)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		t.Fatal(err)
	}
	since := time.Now()
	messages := make([]uuid.UUID, lately)
	for i := range messages {
		messages[i] = keys.NewMessageID()
	}
	exec(`INSERT INTO outbox_message (message_id, aggregate_id, subject, payload) SELECT m, o, 'evt.order.created', '' FROM unnest($1::uuid[], $2::uuid[]) AS u (m, o)`,
		messages, ids[:lately])
	exec(`INSERT INTO outbox_message (message_id, aggregate_id, subject, payload) VALUES ('01900000-0000-7000-8000-000000000000', $1, 'evt.order.created', '')`, ids[lately])
	exec(`INSERT INTO saga_timer (due_at, saga_id) SELECT now() - interval '6 minutes', o FROM unnest($1::uuid[]) AS u (o)`, ids[all-overdue:])

	v := grpcapi.Verify{Pool: pool}
	read := func(req *verifyv1.ListOrdersRequest) (map[string]*verifyv1.Order, int) {
		t.Helper()
		found, pages := make(map[string]*verifyv1.Order), 0
		for {
			resp, err := v.ListOrders(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			pages++
			for _, o := range resp.GetOrders() {
				found[o.GetOrderId()] = o
			}
			if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
				return found, pages
			}
		}
	}
	if found, pages := read(&verifyv1.ListOrdersRequest{}); len(found) != all || pages != 4 {
		t.Errorf("all: got %d orders on %d pages, want %d on 4", len(found), pages, all)
	}
	found, _ := read(&verifyv1.ListOrdersRequest{Since: timestamppb.New(since)})
	if len(found) != all {
		t.Errorf("lately: got %d orders, want all %d: with a message, or overdue", len(found), all)
	}
	if got := found[ids[0].String()]; got.GetTimed() || got.GetOverdue().AsDuration() < time.Hour || got.GetSagaStatus() != "PENDING" || got.GetTotal() != 1 || got.GetRevision() != 1 {
		t.Errorf("the first: got %v, want it PENDING at revision 1, long overdue and without a timer", got)
	}
	if got := found[ids[all-1].String()]; !got.GetTimed() {
		t.Errorf("the last: got %v, want that it has a timer", got)
	}
	exec(`INSERT INTO attention_action (request_key, order_id, asked_step, step, resolution, actor, reason, before, after)
	      VALUES ('a', $1, 's', 's', 'mark_done', 'x', 'y', '{}', '{}'), ('b', $2, 's', 's', 'retry', 'x', 'y', '{}', '{}')`, ids[0], ids[1])
	exec(`DELETE FROM saga_timer`)
	want := slices.Sorted(func(yield func(string) bool) {
		for _, id := range ids[:lately] {
			if !yield(id.String()) {
				return
			}
		}
	})
	found, _ = read(&verifyv1.ListOrdersRequest{Since: timestamppb.New(since)})
	if !found[ids[0].String()].GetMarkedDone() || found[ids[1].String()].GetMarkedDone() {
		t.Error("got another one marked done than the first")
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("with a message: got %d orders, want those %d", len(got), len(want))
	}
	if found, _ := read(&verifyv1.ListOrdersRequest{Since: timestamppb.New(since), Until: timestamppb.New(since)}); len(found) != 0 {
		t.Errorf("until the time since when: got %d orders, want none", len(found))
	}
	if found, _ := read(&verifyv1.ListOrdersRequest{OrderIds: []string{ids[3].String(), uuid.NewString()}}); len(found) != 1 {
		t.Errorf("by ids: got %d orders, want the one that exists", len(found))
	}
	for _, token := range []string{"x", "m1", "t1", "tx/" + uuid.NewString(), "t1/x"} {
		if _, err := v.ListOrders(t.Context(), &verifyv1.ListOrdersRequest{Since: timestamppb.New(since), PageToken: token}); err == nil {
			t.Errorf("token %q: got no error", token)
		}
	}
}
