package jsonpb

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxSafeInteger is 2^53−1, the largest integer n for which a reader that keeps numbers in an IEEE 754 double knows both n
// and n+1 apart (RFC 8259 section 6).
const maxSafeInteger = 1<<53 - 1

const (
	timestampName = protoreflect.FullName("google.protobuf.Timestamp")
	durationName  = protoreflect.FullName("google.protobuf.Duration")
	wellKnown     = "google.protobuf"
)

// unrecognized is the name of an enum number that this release does not know. It is written, never read.
const unrecognized = "UNRECOGNIZED"

// enumPrefix answers what all names of an enum begin with. Enum values share the scope of their enum in a proto file,
// so the names carry the type: ORDER_STATUS_UNSPECIFIED, ORDER_STATUS_PENDING.
func enumPrefix(ed protoreflect.EnumDescriptor) string {
	zero := ed.Values().ByNumber(0)
	if zero == nil {
		return ""
	}
	prefix, found := strings.CutSuffix(string(zero.Name()), "UNSPECIFIED")
	if !found {
		return ""
	}
	return prefix
}

// enumName answers the JSON name of an enum's value.
func enumName(ed protoreflect.EnumDescriptor, n protoreflect.EnumNumber) string {
	v := ed.Values().ByNumber(n)
	if v == nil {
		return unrecognized
	}
	return strings.TrimPrefix(string(v.Name()), enumPrefix(ed))
}

// enumNumber answers the value with a JSON name.
func enumNumber(ed protoreflect.EnumDescriptor, name string) (protoreflect.EnumNumber, bool) {
	v := ed.Values().ByName(protoreflect.Name(enumPrefix(ed) + name))
	if v == nil {
		return 0, false
	}
	return v.Number(), true
}

// isUnsupportedMessage says whether a message type has a JSON form of its own that this package does not know.
func isUnsupportedMessage(md protoreflect.MessageDescriptor) bool {
	return md.FullName() != timestampName && md.ParentFile().Package() == wellKnown
}
