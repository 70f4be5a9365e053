package jsonpb_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// kindsFile declares every kind of field that the package renders and our own contracts do not all have, with the
// fields out of order, a message with fields that it only writes, and one with a field that it does not render.
const kindsFile = `
name: "kinds.proto" package: "kinds" syntax: "proto3"
enum_type { name: "Level"
  value { name: "LEVEL_UNSPECIFIED" number: 0 } value { name: "LEVEL_HIGH" number: 3 } }
message_type { name: "Floats" field { name: "f" json_name: "f" number: 1 label: LABEL_OPTIONAL type: TYPE_FLOAT } }
message_type { name: "Written"
  field { name: "d" json_name: "d" number: 1 label: LABEL_OPTIONAL type: TYPE_DOUBLE }
  field { name: "raw" json_name: "raw" number: 2 label: LABEL_OPTIONAL type: TYPE_BYTES } }
message_type { name: "Kinds"
  field { name: "levels" json_name: "levels" number: 8 label: LABEL_REPEATED type: TYPE_ENUM type_name: ".kinds.Level" }
  field { name: "str" json_name: "str" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "i32" json_name: "i32" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 }
  field { name: "i64" json_name: "i64" number: 3 label: LABEL_OPTIONAL type: TYPE_SINT64 }
  field { name: "u32" json_name: "u32" number: 4 label: LABEL_OPTIONAL type: TYPE_FIXED32 }
  field { name: "u64" json_name: "u64" number: 5 label: LABEL_OPTIONAL type: TYPE_UINT64 }
  field { name: "flag" json_name: "flag" number: 6 label: LABEL_OPTIONAL type: TYPE_BOOL }
  field { name: "level" json_name: "level" number: 7 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".kinds.Level" }
  field { name: "children" json_name: "children" number: 9 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".kinds.Kinds.ChildrenEntry" }
  field { name: "left" json_name: "left" number: 10 label: LABEL_OPTIONAL type: TYPE_STRING oneof_index: 0 }
  field { name: "right" json_name: "right" number: 11 label: LABEL_OPTIONAL type: TYPE_INT64 oneof_index: 0 }
  field { name: "at" json_name: "at" number: 12 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
  field { name: "maybe" json_name: "maybe" number: 13 label: LABEL_OPTIONAL type: TYPE_INT64 oneof_index: 1 proto3_optional: true }
  nested_type { name: "ChildrenEntry" options { map_entry: true }
    field { name: "key" json_name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" json_name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".kinds.Kinds" } }
  oneof_decl { name: "side" } oneof_decl { name: "_maybe" }
}
dependency: "google/protobuf/timestamp.proto"
`

func newKinds(t testing.TB) *dynamicpb.Message { return dynamicpb.NewMessage(kindsMessage(t, "Kinds")) }
func newFloats(t testing.TB) *dynamicpb.Message {
	return dynamicpb.NewMessage(kindsMessage(t, "Floats"))
}

func kindsMessage(t testing.TB, name protoreflect.Name) protoreflect.MessageDescriptor {
	t.Helper()
	var fdp descriptorpb.FileDescriptorProto
	if err := prototext.Unmarshal([]byte(kindsFile), &fdp); err != nil {
		t.Fatalf("reading the descriptor: %v", err)
	}
	fd, err := protodesc.NewFile(&fdp, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatalf("building the descriptor: %v", err)
	}
	return fd.Messages().ByName(name)
}
