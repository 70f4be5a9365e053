package postgres

import (
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// registerUUIDs lets uuid.UUID go to the server and come back as the 16 bytes that it is. Without that pgx sees a driver.Valuer
// and a sql.Scanner in it: each id of each array is then written as a text, which a first attempt fails to encode, and parsed
// again. It was an eighth of what a busy service did.
func registerUUIDs(m *pgtype.Map) {
	id := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	m.RegisterType(id)
	m.RegisterType(&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: uuidArrayCodec{&pgtype.ArrayCodec{ElementType: id}}})
}

// uuidCodec is pgx's own, and knows uuid.UUID.
type uuidCodec struct{ pgtype.UUIDCodec }

// PlanEncode implements pgtype.Codec.
func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return encodeUUID{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

// PlanScan implements pgtype.Codec.
func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return scanUUID{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type encodeUUID struct{}

func (encodeUUID) Encode(value any, buf []byte) ([]byte, error) {
	id, ok := value.(uuid.UUID)
	if !ok {
		return nil, fmt.Errorf("cannot encode a %T as a uuid", value)
	}
	return append(buf, id[:]...), nil
}

// scanUUID gives the zero id for NULL, as scanning into a new uuid.UUID does without it.
type scanUUID struct{}

func (scanUUID) Scan(src []byte, target any) error {
	id, ok := target.(*uuid.UUID)
	switch {
	case !ok:
		return fmt.Errorf("cannot scan a uuid into a %T", target)
	case src == nil:
		*id = uuid.Nil
		return nil
	case len(src) != len(id):
		return fmt.Errorf("cannot scan %d bytes as a uuid", len(src))
	}
	copy(id[:], src)
	return nil
}

// uuidArrayCodec is pgx's own, and writes slices of ids without looking at them one by one.
type uuidArrayCodec struct{ *pgtype.ArrayCodec }

// PlanEncode implements pgtype.Codec.
func (c uuidArrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case []uuid.UUID, []*uuid.UUID:
			return encodeUUIDs{}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

type encodeUUIDs struct{}

func (encodeUUIDs) Encode(value any, buf []byte) ([]byte, error) {
	switch ids := value.(type) {
	case []uuid.UUID:
		if ids == nil {
			return nil, nil
		}
		buf = appendArrayHeader(buf, len(ids), false)
		for i := range ids {
			buf = binary.BigEndian.AppendUint32(buf, uint32(len(ids[i])))
			buf = append(buf, ids[i][:]...)
		}
		return buf, nil
	case []*uuid.UUID:
		if ids == nil {
			return nil, nil
		}
		buf = appendArrayHeader(buf, len(ids), true)
		for _, id := range ids {
			if id == nil {
				buf = binary.BigEndian.AppendUint32(buf, nullLength)
				continue
			}
			buf = binary.BigEndian.AppendUint32(buf, uint32(len(id)))
			buf = append(buf, id[:]...)
		}
		return buf, nil
	}
	return nil, fmt.Errorf("cannot encode a %T as an array of uuid", value)
}

// nullLength is -1, the length of NULL.
const nullLength = 1<<32 - 1

// appendArrayHeader begins an array of n ids, in the form of the server's array_recv: dimensions, whether there may be NULLs,
// the type of the elements, and of each dimension its length and the index of its first element. An empty array has none.
func appendArrayHeader(buf []byte, n int, nulls bool) []byte {
	var dimensions, flag uint32
	if n > 0 {
		dimensions = 1
	}
	if nulls {
		flag = 1
	}
	buf = binary.BigEndian.AppendUint32(buf, dimensions)
	buf = binary.BigEndian.AppendUint32(buf, flag)
	buf = binary.BigEndian.AppendUint32(buf, pgtype.UUIDOID)
	if n > 0 {
		buf = binary.BigEndian.AppendUint32(buf, uint32(n))
		buf = binary.BigEndian.AppendUint32(buf, 1)
	}
	return buf
}
