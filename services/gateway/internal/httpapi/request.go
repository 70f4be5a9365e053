package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/throughline/throughline/services/gateway/internal/grpcapi"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/jsonpb"
)

// invalid answers an error about parts of the request.
func invalid(reason grpcx.Reason, message string, vs ...grpcx.Violation) error {
	return grpcx.Error(reason, message, grpcx.WithViolations(vs...))
}

// checkQuery refuses what grpc-gateway would pass over: unknown and repeated parameters, and text that protobuf cannot
// carry, which would come back as an internal error.
func checkQuery(raw string, known []string) error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return grpcx.Error(grpcx.RequestMalformed, "the query is malformed")
	}
	var vs []grpcx.Violation
	for name, vals := range values {
		switch {
		case !slices.Contains(known, name):
			vs = append(vs, grpcx.Violation{Path: shown(name), Detail: "unknown parameter"})
		case len(vals) > 1:
			vs = append(vs, grpcx.Violation{Path: name, Detail: "repeated parameter"})
		case !isText(vals[0]):
			vs = append(vs, grpcx.Violation{Path: name, Detail: "is not UTF-8 text"})
		case name == "page_size":
			if _, err := strconv.ParseInt(vals[0], 10, 32); err != nil {
				vs = append(vs, grpcx.Violation{Path: name, Detail: "must be an integer"})
			}
		}
	}
	if len(vs) == 0 {
		return nil
	}
	slices.SortFunc(vs, func(a, b grpcx.Violation) int { return strings.Compare(a.Path, b.Path) })
	return invalid(grpcx.RequestMalformed, "the query cannot be read", vs...)
}

// maxShown is how much of a caller's own name is repeated to it, in bytes.
const maxShown = 64

func shown(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxShown)], "")
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// checkMedia wants JSON, as it is.
func checkMedia(h http.Header) error {
	for _, encodings := range h.Values("Content-Encoding") {
		for e := range strings.SplitSeq(encodings, ",") {
			if e = strings.TrimSpace(e); e != "" && !strings.EqualFold(e, "identity") {
				return grpcx.Error(grpcx.UnsupportedMediaType, "a body must be sent without a content encoding")
			}
		}
	}
	values := h.Values("Content-Type")
	if len(values) != 1 {
		return grpcx.Error(grpcx.UnsupportedMediaType, "one Content-Type is needed: application/json")
	}
	media, params, err := mime.ParseMediaType(values[0])
	if err != nil || media != "application/json" {
		return grpcx.Error(grpcx.UnsupportedMediaType, "the Content-Type must be application/json")
	}
	if cs, ok := params["charset"]; ok && !strings.EqualFold(cs, "utf-8") {
		return grpcx.Error(grpcx.UnsupportedMediaType, "the charset must be utf-8")
	}
	return nil
}

// body is the body of a request, whole, in the place of the one that came over the network. The decoder that grpc-gateway calls
// finds it there, and leaves its error there: grpc-gateway itself would only keep an error's text.
type body struct {
	*bytes.Reader
	data []byte
	// taken are the names of the fields that the path fills in.
	taken []string
	err   error
}

func newBody(data []byte, taken []string) *body {
	return &body{Reader: bytes.NewReader(data), data: data, taken: taken}
}

// Close does nothing: there is nothing behind it.
func (b *body) Close() error { return nil }

func (b *body) decode(v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("reading a body into a %T", v)
	}
	b.err = b.decodeMessage(m)
	return b.err
}

func (b *body) decodeMessage(m proto.Message) error {
	var refused *jsonpb.Error
	switch err := jsonpb.Unmarshal(b.data, m); {
	case errors.As(err, &refused) && refused.Path == "":
		return grpcx.Error(grpcx.RequestMalformed, refused.Detail)
	case errors.As(err, &refused):
		return invalid(grpcx.RequestMalformed, "the body cannot be read", grpcx.Violation(*refused))
	case err != nil:
		return err
	}
	for _, name := range b.taken {
		fd := m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(name))
		if fd != nil && m.ProtoReflect().Has(fd) {
			return invalid(grpcx.RequestMalformed, "the body cannot be read",
				grpcx.Violation{Path: fd.JSONName(), Detail: "is in the path; leave it out"})
		}
	}
	return nil
}

// readBody reads a whole body within its limit.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > grpcapi.MaxPayload {
		// What follows is not read, so the connection cannot be used again.
		w.Header().Set("Connection", "close")
		return nil, tooLarge()
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, grpcapi.MaxPayload))
	var tooMuch *http.MaxBytesError
	switch {
	case errors.As(err, &tooMuch):
		return nil, tooLarge()
	case err != nil:
		// Cut off, too slow, or malformed chunks. Nothing was done with the part that came.
		w.Header().Set("Connection", "close")
		return nil, grpcx.Error(grpcx.RequestMalformed, "the body did not arrive whole")
	}
	return data, nil
}

func tooLarge() error {
	return grpcx.Error(grpcx.PayloadTooLarge, "a body may have "+strconv.Itoa(grpcapi.MaxPayload)+" bytes")
}
