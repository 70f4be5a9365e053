package httpapi

import (
	"fmt"
	"io"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/services/internal/jsonpb"
)

// storedBody is the JSON of an answer that was rendered before and is served as it is.
type storedBody []byte

// marshaler is grpc-gateway's way to JSON.
type marshaler struct{}

var _ runtime.Marshaler = marshaler{}

func (marshaler) ContentType(any) string { return "application/json" }

func (marshaler) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case storedBody:
		return v, nil
	case proto.Message:
		return jsonpb.Marshal(v)
	default:
		return nil, fmt.Errorf("rendering a %T", v)
	}
}

func (m marshaler) Unmarshal(data []byte, v any) error { return newBody(data, nil).decode(v) }

func (m marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		if b, ok := r.(*body); ok {
			return b.decode(v)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("reading a body: %w", err)
		}
		return newBody(data, nil).decode(v)
	})
}

func (m marshaler) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		data, err := m.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
}
