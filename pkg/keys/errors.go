package keys

// HeaderError says why an Idempotency-Key header was refused. All of them are
// the client's fault, and none has used up a key.
type HeaderError struct {
	// Reason is the stable word for programs, e.g. "KEY_MISSING".
	Reason string
	// Detail is one sentence for people. It never contains the key.
	Detail string
}

// Error returns the detail.
func (e *HeaderError) Error() string { return e.Detail }

// The refusals of [ParseHeader]. Each is returned as it is: compare with errors.Is, or
// take the reason with errors.As.
var (
	ErrMissing      = &HeaderError{"KEY_MISSING", "the Idempotency-Key header is missing"}
	ErrRepeated     = &HeaderError{"KEY_REPEATED", "the Idempotency-Key header must occur once"}
	ErrEmpty        = &HeaderError{"KEY_EMPTY", "the idempotency key is empty"}
	ErrMalformed    = &HeaderError{"KEY_MALFORMED", "the idempotency key is neither a bare key nor a valid quoted string"}
	ErrTooLong      = &HeaderError{"KEY_TOO_LONG", "the idempotency key is longer than 255 bytes"}
	ErrNotPrintable = &HeaderError{"KEY_NOT_PRINTABLE", "the idempotency key may hold printable ASCII characters only"}
)
