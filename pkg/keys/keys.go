package keys

import (
	"encoding/binary"

	"github.com/google/uuid"
)

// The namespaces of our derivations: random UUIDs, fixed for ever. Another value
// would give every existing order a second identity.
const (
	OrderNamespace   = "13f5d3e1-9732-4b3f-b29b-9733f9e94f60"
	RequestNamespace = "7b29d14d-4290-4e81-98ad-f290a8f7f23c"
)

var (
	orderNamespace   = uuid.MustParse(OrderNamespace)
	requestNamespace = uuid.MustParse(RequestNamespace)
)

// OrderID returns the id of the one order that key names for this client. The
// key is what [ParseHeader] returned, compared byte for byte.
func OrderID(clientID, key string) uuid.UUID {
	return derive(orderNamespace, clientID, key)
}

// RequestID returns the id of any other idempotent request: one key of one
// client names one request per operation, so that a key used for creating an
// order never answers for cancelling one. The operation is a stable word chosen
// by the caller, such as "orders.cancel".
func RequestID(clientID, operation, key string) uuid.UUID {
	return derive(requestNamespace, clientID, operation, key)
}

// StepKey returns the key under which every attempt of a step of this order
// reaches its participant.
func StepKey(orderID uuid.UUID, step string) uuid.UUID {
	return uuid.NewSHA1(orderID, []byte(step))
}

// ProviderKey returns the key under which every attempt of one operation of a
// step reaches an outside provider. It never depends on the attempt: a new key
// after a timeout is how a card is charged twice.
func ProviderKey(stepKey uuid.UUID, operation string) uuid.UUID {
	return uuid.NewSHA1(stepKey, []byte(operation))
}

// NewMessageID mints the id of a new message: a UUIDv7. Within one process
// consecutive ids strictly increase, also within one millisecond and when the
// clock steps back; ids of concurrent calls differ and are in some order.
// Between processes the order is that of their clocks, roughly.
//
// It is safe for concurrent use and takes well under a microsecond.
func NewMessageID() uuid.UUID {
	// The library orders its ids by a 12-bit fraction of the millisecond that it
	// carries into the clock when it runs out; TestNewMessageID holds it to that.
	// Its only error is the system's random source failing, which in Go ends the
	// process by itself.
	return uuid.Must(uuid.NewV7())
}

func derive(namespace uuid.UUID, parts ...string) uuid.UUID {
	return uuid.NewSHA1(namespace, join(parts))
}

// join writes each part behind its length, see the package comment.
func join(parts []string) []byte {
	n := 8 * len(parts)
	for _, p := range parts {
		n += len(p)
	}
	b := make([]byte, 0, n)
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	return b
}
