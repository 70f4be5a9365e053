package postgres_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

func TestUUIDs(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	id, other := uuid.New(), uuid.New()
	var (
		one, text      string
		back           uuid.UUID
		missing, there *uuid.UUID
		list           []uuid.UUID
		mixed          []*uuid.UUID
		pg             pgtype.UUID
	)
	err := pool.QueryRow(t.Context(), `
SELECT ($1::uuid)::text, ($2::uuid[])::text, $1::uuid, $3::uuid, $4::uuid, $2::uuid[], $5::uuid[], $1::uuid`,
		id, []uuid.UUID{id, other}, (*uuid.UUID)(nil), &other, []*uuid.UUID{&id, nil, &other}).
		Scan(&one, &text, &back, &missing, &there, &list, &mixed, &pg)
	if err != nil {
		t.Fatal(err)
	}
	if want := id.String(); one != want {
		t.Errorf("got %s at the server, want %s", one, want)
	}
	if want := "{" + id.String() + "," + other.String() + "}"; text != want {
		t.Errorf("got %s at the server, want %s", text, want)
	}
	if back != id {
		t.Errorf("got %s back, want %s", back, id)
	}
	if missing != nil {
		t.Errorf("got %s for NULL, want nil", missing)
	}
	if there == nil || *there != other {
		t.Errorf("got %v back, want %s", there, other)
	}
	if want := []uuid.UUID{id, other}; !slices.Equal(list, want) {
		t.Errorf("got %v back, want %v", list, want)
	}
	if len(mixed) != 3 || mixed[0] == nil || *mixed[0] != id || mixed[1] != nil || mixed[2] == nil || *mixed[2] != other {
		t.Errorf("got %v back, want %s, nil and %s", mixed, id, other)
	}
	if pg.Bytes != id {
		t.Errorf("got %s in pgx's own type, want %s", pg, id)
	}
}

func TestUUIDNull(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	id := uuid.New()
	if err := pool.QueryRow(t.Context(), `SELECT NULL::uuid`).Scan(&id); err != nil || id != uuid.Nil {
		t.Errorf("got %s, %v for NULL, want the zero id", id, err)
	}
	var lists struct{ Empty, Null []uuid.UUID }
	rows, err := pool.Query(t.Context(), `SELECT $1::uuid[] AS empty, $2::uuid[] AS null`, []uuid.UUID{}, []uuid.UUID(nil))
	if err != nil {
		t.Fatal(err)
	}
	if lists, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[struct{ Empty, Null []uuid.UUID }]); err != nil {
		t.Fatal(err)
	}
	if lists.Empty == nil || len(lists.Empty) != 0 || lists.Null != nil {
		t.Errorf("got %#v and %#v, want an empty and no array", lists.Empty, lists.Null)
	}
}

func BenchmarkUUIDs(b *testing.B) {
	pool := pgtest.New(b)
	ids := make([]uuid.UUID, 100)
	for i := range ids {
		ids[i] = uuid.New()
	}
	conn, err := pool.Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Release()
	m := conn.Conn().TypeMap()
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		if buf, err = m.Encode(pgtype.UUIDArrayOID, pgtype.BinaryFormatCode, ids, buf[:0]); err != nil {
			b.Fatal(err)
		}
	}
}
