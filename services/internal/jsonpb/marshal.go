package jsonpb

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// timestampLayout has a fixed number of digits, so that one time has one text and texts sort as their times do.
const timestampLayout = "2006-01-02T15:04:05.000000Z"

// Marshal renders a message. Equal messages give equal bytes, in every process of every release that knows the same
// fields. It fails on an integer beyond ±(2^53−1), on a number that is none or infinite, on a string that is not UTF-8, on a
// timestamp outside the years 1 to 9999, and with ErrUnsupported.
func Marshal(m proto.Message) ([]byte, error) {
	if m == nil || !m.ProtoReflect().IsValid() {
		return nil, fmt.Errorf("rendering JSON: message is nil")
	}
	b, err := appendMessage(nil, m.ProtoReflect(), "")
	if err != nil {
		return nil, fmt.Errorf("rendering JSON of %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return b, nil
}

func appendMessage(b []byte, m protoreflect.Message, path string) ([]byte, error) {
	md := m.Descriptor()
	if md.FullName() == timestampName {
		return appendTimestamp(b, m, path)
	}
	if md.FullName() == durationName {
		return appendDuration(b, m, path)
	}
	if isUnsupportedMessage(md) {
		return nil, fmt.Errorf("%s: %w", path, ErrUnsupported)
	}
	b = append(b, '{')
	first := true
	for _, fd := range fieldsByNumber(md) {
		if fd.HasPresence() && !m.Has(fd) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		var err error
		if b, err = appendString(b, fd.JSONName(), path); err != nil {
			return nil, err
		}
		b = append(b, ':')
		if b, err = appendField(b, fd, m.Get(fd), memberPath(path, fd.JSONName())); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// fieldsByNumber answers the fields of a message in the order of their numbers. That is nearly always the order in
// which they are declared, which costs one pass to see.
func fieldsByNumber(md protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	fds := make([]protoreflect.FieldDescriptor, md.Fields().Len())
	for i := range fds {
		fds[i] = md.Fields().Get(i)
	}
	byNumber := func(a, b protoreflect.FieldDescriptor) int { return cmp.Compare(a.Number(), b.Number()) }
	if !slices.IsSortedFunc(fds, byNumber) {
		slices.SortFunc(fds, byNumber)
	}
	return fds
}

func appendField(b []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value, path string) ([]byte, error) {
	switch {
	case fd.IsMap():
		return appendMap(b, fd, v.Map(), path)
	case fd.IsList():
		return appendList(b, fd, v.List(), path)
	default:
		return appendValue(b, fd, v, path)
	}
}

func appendList(b []byte, fd protoreflect.FieldDescriptor, l protoreflect.List, path string) ([]byte, error) {
	b = append(b, '[')
	for i := range l.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendValue(b, fd, l.Get(i), indexPath(path, i)); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendMap(b []byte, fd protoreflect.FieldDescriptor, m protoreflect.Map, path string) ([]byte, error) {
	if fd.MapKey().Kind() != protoreflect.StringKind {
		return nil, fmt.Errorf("%s: %w", path, ErrUnsupported)
	}
	keys := make([]string, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k.String())
		return true
	})
	slices.Sort(keys)
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		at := keyPath(path, k)
		var err error
		if b, err = appendString(b, k, at); err != nil {
			return nil, err
		}
		b = append(b, ':')
		if b, err = appendValue(b, fd.MapValue(), m.Get(protoreflect.ValueOfString(k).MapKey()), at); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendValue(b []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value, path string) ([]byte, error) {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return appendString(b, v.String(), path)
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool()), nil
	case protoreflect.EnumKind:
		return appendString(b, enumName(fd.Enum(), v.Enum()), path)
	case protoreflect.MessageKind:
		return appendMessage(b, v.Message(), path)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind,
		protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		n := v.Int()
		if n > maxSafeInteger || n < -maxSafeInteger {
			return nil, &Error{Path: path, Detail: "integer beyond ±(2^53−1)"}
		}
		return strconv.AppendInt(b, n, 10), nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		n := v.Uint()
		if n > maxSafeInteger {
			return nil, &Error{Path: path, Detail: "integer beyond ±(2^53−1)"}
		}
		return strconv.AppendUint(b, n, 10), nil
	case protoreflect.DoubleKind:
		f := v.Float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, &Error{Path: path, Detail: "number is none, or infinite"}
		}
		return strconv.AppendFloat(b, f, 'f', -1, 64), nil
	case protoreflect.BytesKind:
		b = base64.StdEncoding.AppendEncode(append(b, '"'), v.Bytes())
		return append(b, '"'), nil
	default:
		return nil, fmt.Errorf("%s: %w", path, ErrUnsupported)
	}
}

func appendString(b []byte, s, path string) ([]byte, error) {
	b, err := jsontext.AppendQuote(b, s)
	if err != nil {
		return nil, &Error{Path: path, Detail: "string is not valid UTF-8"}
	}
	return b, nil
}

func appendTimestamp(b []byte, m protoreflect.Message, path string) ([]byte, error) {
	fds := m.Descriptor().Fields()
	ts := &timestamppb.Timestamp{
		Seconds: m.Get(fds.ByName("seconds")).Int(),
		Nanos:   int32(m.Get(fds.ByName("nanos")).Int()),
	}
	if err := ts.CheckValid(); err != nil {
		return nil, &Error{Path: path, Detail: "timestamp outside the years 1 to 9999"}
	}
	b = append(b, '"')
	b = ts.AsTime().Truncate(time.Microsecond).AppendFormat(b, timestampLayout)
	return append(b, '"'), nil
}

func appendDuration(b []byte, m protoreflect.Message, path string) ([]byte, error) {
	fds := m.Descriptor().Fields()
	d := &durationpb.Duration{
		Seconds: m.Get(fds.ByName("seconds")).Int(),
		Nanos:   int32(m.Get(fds.ByName("nanos")).Int()),
	}
	if err := d.CheckValid(); err != nil {
		return nil, &Error{Path: path, Detail: "duration beyond 10,000 years"}
	}
	sign := ""
	if d.GetSeconds() < 0 || d.GetNanos() < 0 {
		sign, d.Seconds, d.Nanos = "-", -d.GetSeconds(), -d.GetNanos()
	}
	return fmt.Appendf(b, `"%s%d.%06ds"`, sign, d.GetSeconds(), d.GetNanos()/1000), nil
}
