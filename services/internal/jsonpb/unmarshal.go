package jsonpb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Unmarshal reads one JSON object into m, which is emptied first. What it refuses, it refuses with an *Error; any other
// error (ErrUnsupported) is a mistake in the contract. After an error m is empty.
func Unmarshal(data []byte, m proto.Message) error {
	proto.Reset(m)
	if err := unmarshal(data, m.ProtoReflect()); err != nil {
		proto.Reset(m)
		return err
	}
	return nil
}

func unmarshal(data []byte, m protoreflect.Message) error {
	switch {
	case len(bytes.TrimLeft(data, " \t\r\n")) == 0:
		return &Error{Detail: "there is no JSON; an object is wanted"}
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return &Error{Detail: "the JSON begins with a byte-order mark"}
	case !utf8.Valid(data):
		return &Error{Detail: "the JSON is not valid UTF-8"}
	}
	r := &reader{dec: jsontext.NewDecoder(bytes.NewBuffer(data))}
	if err := r.message(m, ""); err != nil {
		return err
	}
	switch _, err := r.dec.ReadToken(); {
	case errors.Is(err, io.EOF):
		return nil
	default:
		return &Error{Detail: "there is something after the JSON object"}
	}
}

// reader walks a JSON text beside the descriptor of the message that it fills. The decoder beneath it refuses malformed
// JSON, duplicate members and unpaired surrogates.
type reader struct {
	dec *jsontext.Decoder
}

// syntax turns a decoder's error into ours. path is that of the value being read.
func (r *reader) syntax(err error, path string) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return &Error{Path: path, Detail: "the JSON ends too early"}
	}
	var se *jsontext.SyntacticError
	if !errors.As(err, &se) {
		return fmt.Errorf("reading JSON: %w", err)
	}
	return &Error{Path: path, Detail: "malformed JSON at byte " + strconv.FormatInt(se.ByteOffset, 10)}
}

// want checks the kind of the next value before it is read, so that a wrong one is named and not walked through.
func (r *reader) want(kind jsontext.Kind, path string) error {
	got := r.dec.PeekKind()
	switch got {
	case kind:
		return nil
	case 'n', 't', 'f', '"', '0', '{', '[':
	default:
		// Not the beginning of a value: reading it tells why.
		if _, err := r.dec.ReadToken(); err != nil {
			return r.syntax(err, path)
		}
		return &Error{Path: path, Detail: "a value is missing"}
	}
	// A literal may still turn out malformed ("nul"), and then that is what is wrong with it.
	if got != '{' && got != '[' {
		if _, err := r.dec.ReadToken(); err != nil {
			return r.syntax(err, path)
		}
	}
	if got == 'n' {
		return &Error{Path: path, Detail: "null is not accepted; leave the member out"}
	}
	return &Error{Path: path, Detail: "must be " + kindName(kind) + ", not " + kindName(got)}
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	default:
		return "a boolean"
	}
}

// object reads an object and calls member for each name, with the decoder before the value. extend makes the path of a
// member.
func (r *reader) object(path string, extend func(path, name string) string, member func(name, path string) error) error {
	if err := r.want('{', path); err != nil {
		return err
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return r.syntax(err, path)
	}
	for {
		tok, err := r.dec.ReadToken()
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return &Error{Path: extend(path, duplicateName(err)), Detail: "duplicate member"}
		}
		if err != nil {
			return r.syntax(err, path)
		}
		if tok.Kind() == '}' {
			return nil
		}
		name := tok.String()
		if strings.ContainsRune(name, 0) {
			return &Error{Path: extend(path, name), Detail: "a member name contains a NUL character"}
		}
		if err := member(name, extend(path, name)); err != nil {
			return err
		}
	}
}

// duplicateName answers the name that a decoder's error is about.
func duplicateName(err error) string {
	var se *jsontext.SyntacticError
	if !errors.As(err, &se) {
		return ""
	}
	return se.JSONPointer.LastToken()
}

func (r *reader) message(m protoreflect.Message, path string) error {
	if m.Descriptor().FullName() == timestampName {
		return r.timestamp(m, path)
	}
	if isUnsupportedMessage(m.Descriptor()) {
		return fmt.Errorf("%s: %w", path, ErrUnsupported)
	}
	return r.object(path, memberPath, func(name, at string) error {
		// By its JSON name only: a second name for a field would be a way to send it twice.
		fd := m.Descriptor().Fields().ByJSONName(name)
		if fd == nil {
			return &Error{Path: at, Detail: unknownMember(m.Descriptor(), name)}
		}
		if od := fd.ContainingOneof(); od != nil {
			if other := m.WhichOneof(od); other != nil {
				return &Error{Path: at, Detail: "cannot stand beside " + strconv.Quote(other.JSONName())}
			}
		}
		return r.field(m, fd, at)
	})
}

func unknownMember(md protoreflect.MessageDescriptor, name string) string {
	for i := range md.Fields().Len() {
		if known := md.Fields().Get(i).JSONName(); strings.EqualFold(known, name) {
			return "unknown member; names are case-sensitive, and there is " + strconv.Quote(known)
		}
	}
	return "unknown member"
}

func (r *reader) field(m protoreflect.Message, fd protoreflect.FieldDescriptor, path string) error {
	switch {
	case fd.IsMap():
		return r.mapField(m.Mutable(fd).Map(), fd, path)
	case fd.IsList():
		return r.list(m.Mutable(fd).List(), fd, path)
	case fd.Message() != nil:
		return r.message(m.Mutable(fd).Message(), path)
	}
	v, err := r.scalar(fd, path)
	if err != nil {
		return err
	}
	m.Set(fd, v)
	return nil
}

func (r *reader) list(l protoreflect.List, fd protoreflect.FieldDescriptor, path string) error {
	if err := r.want('[', path); err != nil {
		return err
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return r.syntax(err, path)
	}
	for i := 0; r.dec.PeekKind() != ']'; i++ {
		at := indexPath(path, i)
		v := l.NewElement()
		var err error
		if fd.Message() != nil {
			err = r.message(v.Message(), at)
		} else {
			v, err = r.scalar(fd, at)
		}
		if err != nil {
			return err
		}
		l.Append(v)
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return r.syntax(err, path)
	}
	return nil
}

func (r *reader) mapField(m protoreflect.Map, fd protoreflect.FieldDescriptor, path string) error {
	if fd.MapKey().Kind() != protoreflect.StringKind {
		return fmt.Errorf("%s: %w", path, ErrUnsupported)
	}
	return r.object(path, keyPath, func(name, at string) error {
		v := m.NewValue()
		var err error
		if fd.MapValue().Message() != nil {
			err = r.message(v.Message(), at)
		} else {
			v, err = r.scalar(fd.MapValue(), at)
		}
		if err != nil {
			return err
		}
		m.Set(protoreflect.ValueOfString(name).MapKey(), v)
		return nil
	})
}

func (r *reader) scalar(fd protoreflect.FieldDescriptor, path string) (protoreflect.Value, error) {
	var none protoreflect.Value
	switch fd.Kind() {
	case protoreflect.StringKind:
		s, err := r.str(path)
		if err != nil {
			return none, err
		}
		return protoreflect.ValueOfString(s), nil
	case protoreflect.BoolKind:
		return r.boolean(path)
	case protoreflect.EnumKind:
		s, err := r.str(path)
		if err != nil {
			return none, err
		}
		n, ok := enumNumber(fd.Enum(), s)
		if !ok {
			return none, &Error{Path: path, Detail: "is not one of the names that are known here"}
		}
		return protoreflect.ValueOfEnum(n), nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		n, err := r.integer(path, -1<<31, 1<<31-1)
		return protoreflect.ValueOfInt32(int32(n)), err
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		n, err := r.integer(path, -maxSafeInteger, maxSafeInteger)
		return protoreflect.ValueOfInt64(n), err
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		n, err := r.integer(path, 0, 1<<32-1)
		return protoreflect.ValueOfUint32(uint32(n)), err
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		n, err := r.integer(path, 0, maxSafeInteger)
		return protoreflect.ValueOfUint64(uint64(n)), err
	default:
		return none, fmt.Errorf("%s: %w", path, ErrUnsupported)
	}
}

func (r *reader) str(path string) (string, error) {
	if err := r.want('"', path); err != nil {
		return "", err
	}
	tok, err := r.dec.ReadToken()
	if err != nil {
		return "", r.syntax(err, path)
	}
	s := tok.String()
	if strings.ContainsRune(s, 0) {
		return "", &Error{Path: path, Detail: "contains a NUL character"}
	}
	return s, nil
}

func (r *reader) boolean(path string) (protoreflect.Value, error) {
	kind := r.dec.PeekKind()
	if kind != 't' && kind != 'f' {
		kind = 't'
	}
	if err := r.want(kind, path); err != nil {
		return protoreflect.Value{}, err
	}
	tok, err := r.dec.ReadToken()
	if err != nil {
		return protoreflect.Value{}, r.syntax(err, path)
	}
	return protoreflect.ValueOfBool(tok.Bool()), nil
}

// integer reads the digits themselves: 2^53+1 must not become 2^53 on its way to being refused.
func (r *reader) integer(path string, minimum, maximum int64) (int64, error) {
	if err := r.want('0', path); err != nil {
		return 0, err
	}
	raw, err := r.dec.ReadValue()
	if err != nil {
		return 0, r.syntax(err, path)
	}
	if bytes.ContainsAny(raw, ".eE") {
		return 0, &Error{Path: path, Detail: "must be an integer, without fraction or exponent"}
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < minimum || n > maximum {
		return 0, &Error{Path: path, Detail: fmt.Sprintf("must be an integer from %d to %d", minimum, maximum)}
	}
	return n, nil
}

func (r *reader) timestamp(m protoreflect.Message, path string) error {
	s, err := r.str(path)
	if err != nil {
		return err
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(s)); err != nil {
		return &Error{Path: path, Detail: "must be a time such as 2006-01-02T15:04:05Z (RFC 3339)"}
	}
	if t.Nanosecond()%1000 != 0 {
		return &Error{Path: path, Detail: "must have at most six digits of a second"}
	}
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return &Error{Path: path, Detail: "must be a time in the years 1 to 9999"}
	}
	fds := m.Descriptor().Fields()
	m.Set(fds.ByName("seconds"), protoreflect.ValueOfInt64(t.Unix()))
	m.Set(fds.ByName("nanos"), protoreflect.ValueOfInt32(int32(t.Nanosecond())))
	return nil
}
