package keys

import (
	"strings"

	"github.com/dunglas/httpsfv"
)

// MaxLen is the greatest length of a key in bytes, after unquoting.
const MaxLen = 255

// ParseHeader returns the key in the Idempotency-Key header lines of one
// request, as net/http's Header.Values or gRPC's metadata give them.
//
// Two forms are accepted, and `k` and `"k"` are the same key:
//
//   - quoted: an RFC 9651 structured-field string, the form of the IETF draft.
//     Parameters behind it are ignored, so `"k";v=2` is `k`.
//   - bare: anything that does not begin with a quote, taken as it stands. It may
//     hold any printable ASCII character but the comma, because a proxy may join
//     two header lines to one with a comma (RFC 9110 section 5.3): a repeated bare
//     key must not become a third, different key. Quoted keys may hold commas.
//
// Blanks and tabs around the value are dropped; blanks inside and letter case are kept. A key
// has 1 to [MaxLen] bytes. The error is one of the *[HeaderError] values of this package.
func ParseHeader(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", ErrMissing
	case 1:
	default:
		return "", ErrRepeated
	}
	value := strings.Trim(values[0], " \t")
	if value == "" {
		return "", ErrEmpty
	}
	// Before any parsing: gRPC refuses such bytes in metadata with an internal
	// error, so they must never get past this function.
	for i := range len(value) {
		if value[i] < 0x20 || value[i] > 0x7e {
			return "", ErrNotPrintable
		}
	}
	key := value
	if value[0] == '"' {
		// A bare key goes nowhere near the parser: most UUIDs are not valid items.
		item, err := httpsfv.UnmarshalItem([]string{value})
		if err != nil {
			return "", ErrMalformed
		}
		s, ok := item.Value.(string)
		if !ok {
			return "", ErrMalformed
		}
		key = s
	} else if strings.Contains(value, ",") {
		return "", ErrMalformed
	}
	switch {
	case key == "":
		return "", ErrEmpty
	case len(key) > MaxLen:
		return "", ErrTooLong
	}
	return key, nil
}
