package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
	"sigs.k8s.io/yaml"
)

const constants = `package topology
import "time"
const (Events = "EVT"; EventAge = 3 * 24 * time.Hour; Made = "evt.shop.made"; Sold = "evt.shop.sold")
`

// message is one message of the sample proto, with the comment above it.
type message struct{ name, comment string }

var shop = []message{
	{"Made", " Made says that it was made.\n Subject evt.shop.made.\n"},
	{"Sold", " Sold says that it was sold. Subject evt.shop.sold. It is the last.\n"},
	{"Make", " Make asks for it. Subject cmd.shop.make.\n"},
}

// request is what buf sends for the messages, each with one field of the kind given.
func request(t *testing.T, messages []message, kind descriptorpb.FieldDescriptorProto_Type) []byte {
	t.Helper()
	topology := filepath.Join(t.TempDir(), "topology.go")
	if err := os.WriteFile(topology, []byte(constants), 0o600); err != nil {
		t.Fatal(err)
	}
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("shop/v1/events.proto"), Package: proto.String("shop.v1"), Syntax: proto.String("proto3"),
		SourceCodeInfo: &descriptorpb.SourceCodeInfo{},
	}
	for i, m := range messages {
		file.MessageType = append(file.MessageType, &descriptorpb.DescriptorProto{Name: proto.String(m.name), Field: []*descriptorpb.FieldDescriptorProto{{
			Name: proto.String("order_id"), JsonName: proto.String("order_id"), Number: proto.Int32(4), Type: kind.Enum(),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}}})
		const inMessages = 4 // the number of FileDescriptorProto.message_type
		file.SourceCodeInfo.Location = append(file.SourceCodeInfo.Location, &descriptorpb.SourceCodeInfo_Location{
			Path: []int32{inMessages, int32(i)}, Span: []int32{int32(i), 0, 1}, LeadingComments: proto.String(m.comment),
		})
	}
	b, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file.GetName()}, Parameter: proto.String("topology=" + topology), ProtoFile: []*descriptorpb.FileDescriptorProto{file},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func generate(t *testing.T, req []byte) (string, error) {
	t.Helper()
	var out bytes.Buffer
	if err := run(bytes.NewReader(req), &out); err != nil {
		return "", err
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out.Bytes(), &resp); err != nil {
		t.Fatal(err)
	}
	if len(resp.GetFile()) != 1 || resp.GetFile()[0].GetName() != "asyncapi.yaml" {
		t.Fatalf("got the files %v, want asyncapi.yaml", resp.GetFile())
	}
	return resp.GetFile()[0].GetContent(), nil
}

func TestRun(t *testing.T) {
	t.Parallel()
	req := request(t, shop, descriptorpb.FieldDescriptorProto_TYPE_STRING)
	got, err := generate(t, req)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Channels map[string]struct{ Address, Description string }
		Stream   struct{ MaxAge string } `json:"x-jetstream"`
	}
	if err := yaml.Unmarshal([]byte(got), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Channels) != 2 {
		t.Errorf("got %d channels, want 2", len(doc.Channels))
	}
	if got, want := doc.Channels["Made"].Address, "evt.shop.made"; got != want {
		t.Errorf("address of Made: got %q, want %q", got, want)
	}
	if got, want := doc.Channels["Sold"].Description, "Sold says that it was sold. It is the last."; got != want {
		t.Errorf("description of Sold: got %q, want %q", got, want)
	}
	if got, want := doc.Stream.MaxAge, "72h0m0s"; got != want {
		t.Errorf("maxAge: got %q, want %q", got, want)
	}
	if want := "kept for 3 days"; !strings.Contains(got, want) {
		t.Errorf("got the document\n%s\nwithout %q", got, want)
	}
	for range 20 {
		again, err := generate(t, req)
		if err != nil {
			t.Fatal(err)
		}
		if again != got {
			t.Fatalf("the same input gave another document:\n%s\nand before:\n%s", again, got)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		messages []message
		kind     descriptorpb.FieldDescriptorProto_Type
		want     string
	}{
		{"a subject without a message", shop[:1], descriptorpb.FieldDescriptorProto_TYPE_STRING, `"Subject evt.shop.sold."`},
		{"a message without a subject", append(shop[:2:2], message{"Lost", "Subject evt.shop.lost."}), descriptorpb.FieldDescriptorProto_TYPE_STRING, "shop.v1.Lost"},
		{"two messages with one subject", append(shop[:2:2], message{"Resold", "Subject evt.shop.sold."}), descriptorpb.FieldDescriptorProto_TYPE_STRING, "same subject"},
		{"two subjects for one message", []message{{"Made", "Subject evt.shop.made. Subject evt.shop.sold."}}, descriptorpb.FieldDescriptorProto_TYPE_STRING, "more than one subject"},
		{"a field that it cannot describe", shop, descriptorpb.FieldDescriptorProto_TYPE_DOUBLE, "no schema for double"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := generate(t, request(t, tt.messages, tt.kind))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q and error %v, want an error with %q", got, err, tt.want)
			}
		})
	}
}
