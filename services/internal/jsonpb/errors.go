package jsonpb

import (
	"errors"
	"strconv"
	"strings"
)

// ErrUnsupported says that a message has a field of a kind that this package does not render. It is a mistake in a
// contract, never one of a caller's input.
var ErrUnsupported = errors.New("field kind has no JSON form here")

// Error says what is wrong with a JSON text, and where.
type Error struct {
	// Path names the member: lines[1].quantity, metadata["a b"]. It is empty for the text as a whole.
	Path string
	// Detail says what is wrong in words for the caller. It quotes no values.
	Detail string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Detail
	}
	return e.Path + ": " + e.Detail
}

// maxPathName is how much of a caller's member name a path repeats, in bytes. Our own names are shorter; a longer one
// is only shown so that its sender can find it.
const maxPathName = 64

// memberPath extends a path with a member name, which may be anything that a caller made up.
func memberPath(path, name string) string {
	if isPlainName(name) {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	return keyPath(path, name)
}

// keyPath extends a path with the key of a map.
func keyPath(path, key string) string {
	if len(key) > maxPathName {
		key = strings.ToValidUTF8(key[:maxPathName], "") + "…"
	}
	return path + "[" + strconv.Quote(key) + "]"
}

// indexPath extends a path with the index of an array.
func indexPath(path string, i int) string {
	return path + "[" + strconv.Itoa(i) + "]"
}

func isPlainName(s string) bool {
	if s == "" || len(s) > maxPathName {
		return false
	}
	for i, c := range []byte(s) {
		switch {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case '0' <= c && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return true
}
