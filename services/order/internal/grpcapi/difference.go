package grpcapi

import (
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/throughline/throughline/services/internal/grpcx"
)

// maxDifferences bounds how many members a mismatch names.
const maxDifferences = 20

// mismatch is the error of a key that was used for another request. It names members and no values.
func mismatch(paths []string) error {
	vs := make([]grpcx.Violation, len(paths))
	for i, p := range paths {
		vs[i] = grpcx.Violation{Path: p, Detail: "differs from the request that this key was used for"}
	}
	return grpcx.Error(grpcx.KeyMismatch, "the idempotency key was used for another request", grpcx.WithViolations(vs...))
}

// differences lists the members in which two messages of one type differ, at most maxDifferences. A member that is absent equals its
// default value. None means that the messages are equal.
func differences(a, b proto.Message) []string {
	var d difference
	d.messages("", a.ProtoReflect(), b.ProtoReflect())
	if len(d.paths) == 0 && !proto.Equal(a, b) {
		// In what this release has no name for.
		return []string{""}
	}
	return d.paths
}

type difference struct{ paths []string }

func (d *difference) add(path string) {
	if len(d.paths) < maxDifferences {
		d.paths = append(d.paths, path)
	}
}

func (d *difference) messages(at string, a, b protoreflect.Message) {
	fields := a.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		path := fd.JSONName()
		if at != "" {
			path = at + "." + path
		}
		switch va, vb := a.Get(fd), b.Get(fd); {
		case fd.IsMap():
			// Its keys are the client's data, so only the map is named.
			if !va.Equal(vb) {
				d.add(path)
			}
		case fd.IsList():
			d.lists(path, fd, va.List(), vb.List())
		case fd.Message() != nil:
			if a.Has(fd) != b.Has(fd) {
				d.add(path)
				continue
			}
			d.messages(path, va.Message(), vb.Message())
		case !va.Equal(vb):
			d.add(path)
		}
	}
}

func (d *difference) lists(path string, fd protoreflect.FieldDescriptor, a, b protoreflect.List) {
	if a.Len() != b.Len() {
		d.add(path)
		return
	}
	for i := range a.Len() {
		at := path + "[" + strconv.Itoa(i) + "]"
		switch va, vb := a.Get(i), b.Get(i); {
		case fd.Message() != nil:
			d.messages(at, va.Message(), vb.Message())
		case !va.Equal(vb):
			d.add(at)
		}
	}
}

// hasUnknown tells whether a message has fields that this release does not know. They would be stored and compared, and never acted on.
func hasUnknown(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	found := false
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap(): // of texts
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				found = found || hasUnknown(v.List().Get(i).Message())
			}
		case fd.Message() != nil:
			found = found || hasUnknown(v.Message())
		}
		return !found
	})
	return found
}
