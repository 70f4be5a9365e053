package stored

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// identity is what tells one stored order from another.
type identity struct {
	ids    []uuid.UUID // in the places of the template's
	key    []byte
	number int64         // added to the numbers of rows
	back   time.Duration // how long before the template it happened
}

// stamp is the rows that one order leaves in one table, in the binary form of COPY, and where the order's own is in them.
type stamp struct {
	rows  []byte
	marks []mark
	count int // of rows
}

type markKind uint8

const (
	markID markKind = iota
	markIDText
	markKey
	markNumber
	markTime
)

type mark struct {
	kind   markKind
	at, id int
}

// column is what has to be known of a column.
type column struct {
	name     string
	oid      uint32
	numbered bool // it holds a number that the database gives, or refers to one
}

// The binary form of COPY: a signature, flags, the length of an extension, and then the rows; a row is the number of its fields and
// each field with its length, and the end is a row of -1 fields.
const copyHeader = 11 + 4 + 4

var signature = []byte("PGCOPY\n\xff\r\n\x00")

var errForm = errors.New("the rows do not have the binary form of COPY")

// newStamp reads rows that COPY TO has written.
func newStamp(written []byte, columns []column, known []uuid.UUID, key string) (*stamp, error) {
	if len(written) < copyHeader || !bytes.HasPrefix(written, signature) {
		return nil, errForm
	}
	s := &stamp{}
	rest := written[copyHeader+int(binary.BigEndian.Uint32(written[copyHeader-4:])):]
	for {
		if len(rest) < 2 {
			return nil, errForm
		}
		fields := int16(binary.BigEndian.Uint16(rest))
		if fields == -1 {
			return s, nil
		}
		if int(fields) != len(columns) {
			return nil, fmt.Errorf("%w: %d fields of %d columns", errForm, fields, len(columns))
		}
		s.count++
		s.rows = append(s.rows, rest[:2]...)
		rest = rest[2:]
		for i := range columns {
			if len(rest) < 4 {
				return nil, errForm
			}
			length := max(int(int32(binary.BigEndian.Uint32(rest))), 0) // -1 is NULL
			if len(rest) < 4+length {
				return nil, errForm
			}
			s.mark(rest[4:4+length], len(s.rows)+4, &columns[i], known, key)
			s.rows = append(s.rows, rest[:4+length]...)
			rest = rest[4+length:]
		}
	}
}

// mark notes what in a field is the order's own. at is where it will be.
func (s *stamp) mark(field []byte, at int, c *column, known []uuid.UUID, key string) {
	const eight = 8
	switch {
	case c.numbered && len(field) == eight:
		s.marks = append(s.marks, mark{kind: markNumber, at: at})
	case c.oid == pgtype.TimestamptzOID && len(field) == eight:
		s.marks = append(s.marks, mark{kind: markTime, at: at})
	default:
		for i, id := range known {
			s.find(field, id[:], mark{markID, at, i})
			s.find(field, []byte(id.String()), mark{markIDText, at, i})
		}
		s.find(field, []byte(key), mark{kind: markKey, at: at})
	}
}

func (s *stamp) find(field, what []byte, m mark) {
	start := m.at
	for from := 0; ; {
		i := bytes.Index(field[from:], what)
		if i < 0 {
			return
		}
		m.at = start + from + i
		s.marks = append(s.marks, m)
		from += i + len(what)
	}
}

// appendTo appends the rows of an order.
func (s *stamp) appendTo(b []byte, who *identity) []byte {
	start := len(b)
	b = append(b, s.rows...)
	rows := b[start:]
	for _, m := range s.marks {
		switch m.kind {
		case markID:
			copy(rows[m.at:], who.ids[m.id][:])
		case markIDText:
			const textLength = 36
			var text [textLength]byte
			copy(rows[m.at:], appendText(text[:0], who.ids[m.id]))
		case markKey:
			copy(rows[m.at:], who.key)
		case markNumber:
			n := binary.BigEndian.Uint64(s.rows[m.at:])
			binary.BigEndian.PutUint64(rows[m.at:], n+uint64(who.number))
		case markTime:
			t := binary.BigEndian.Uint64(s.rows[m.at:])
			binary.BigEndian.PutUint64(rows[m.at:], t-uint64(who.back.Microseconds()))
		}
	}
	return b
}

func appendText(b []byte, id uuid.UUID) []byte {
	text, err := id.MarshalText()
	if err != nil {
		return b // it never fails
	}
	return append(b, text...)
}
