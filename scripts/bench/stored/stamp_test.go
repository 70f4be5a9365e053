package stored

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// written is one row in the binary form of COPY; a nil field is NULL.
func written(fields ...[]byte) []byte {
	b := append(slices.Clone(signature), make([]byte, 8)...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(fields)))
	for _, f := range fields {
		if f == nil {
			b = binary.BigEndian.AppendUint32(b, 1<<32-1)
			continue
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	return append(b, 0xff, 0xff)
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func TestStamp(t *testing.T) {
	t.Parallel()
	order, other := uuid.New(), uuid.New()
	const key = "the-key"
	columns := []column{
		{"order_id", pgtype.UUIDOID, false}, {"order_no", pgtype.Int8OID, true}, {"total", pgtype.Int8OID, false},
		{"data", pgtype.ByteaOID, false}, {"created_at", pgtype.TimestamptzOID, false}, {"gone", pgtype.TextOID, false}, {"foreign", pgtype.UUIDOID, false},
	}
	s, err := newStamp(written(order[:], number(7), number(7), []byte("<"+order.String()+" "+key+">"), number(1_000_000), nil, other[:]), columns,
		[]uuid.UUID{order}, key)
	if err != nil {
		t.Fatal(err)
	}
	who := identity{ids: []uuid.UUID{uuid.New()}, key: []byte("not-the"), number: 5, back: 100 * time.Millisecond}
	got := s.appendTo([]byte("before"), &who)
	want := written(who.ids[0][:], number(12), number(7), []byte("<"+who.ids[0].String()+" not-the>"), number(900_000), nil, other[:])
	want = append([]byte("before"), want[copyHeader:len(want)-2]...)
	if !bytes.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if s.count != 1 {
		t.Errorf("got %d rows, want 1", s.count)
	}
}

func TestStampOfNoCopy(t *testing.T) {
	t.Parallel()
	whole := written(number(1))
	for n := range len(whole) - 1 {
		if _, err := newStamp(whole[:n], []column{{"n", pgtype.Int8OID, false}}, nil, "key"); err == nil {
			t.Fatalf("the first %d of %d bytes: got no error", n, len(whole))
		}
	}
}

// The databases of the services are loaded apart, and must hold the same orders.
func TestIdentitiesAgree(t *testing.T) {
	t.Parallel()
	v7, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	of := Template{Known: []uuid.UUID{uuid.New(), v7}, Key: "0123456789"}
	random, again := rand.NewChaCha8([32]byte{1}), rand.NewChaCha8([32]byte{1})
	seen := make(map[uuid.UUID]bool)
	var last uuid.UUID
	const n = 1000
	for i := range n {
		a, b := of.another(i, history{n, n / 2}, random), of.another(i, history{n, n / 2}, again)
		if !slices.Equal(a.ids, b.ids) || !bytes.Equal(a.key, b.key) {
			t.Fatalf("order %d: got %v and %v, want the same", i, a, b)
		}
		if seen[a.ids[0]] || seen[a.ids[1]] {
			t.Fatalf("order %d: got ids %v again", i, a.ids)
		}
		seen[a.ids[0]], seen[a.ids[1]] = true, true
		if a.ids[0].Version() != of.Known[0].Version() || a.ids[1].Version() != v7.Version() {
			t.Errorf("order %d: got versions %d and %d, want the template's", i, a.ids[0].Version(), a.ids[1].Version())
		}
		if slices.Compare(a.ids[1][:6], last[:6]) < 0 {
			t.Errorf("order %d: got %s after %s, want message ids to grow", i, a.ids[1], last)
		}
		last = a.ids[1]
		if len(a.key) != len(of.Key) {
			t.Errorf("order %d: got the key %q, want %d bytes", i, a.key, len(of.Key))
		}
	}
}
