// Command protoc-gen-asyncapi is a protoc plugin that writes the AsyncAPI document of the events.
//
// An event is a message of the protos whose comment ends with "Subject evt.<service>.<fact>." The plugin takes subject,
// description and fields from there, the names of headers from pkg/messaging, and the stream from the services' topology.
// That every subject of the topology has its message, and every such message its subject, is checked here, so a new
// event cannot be left out.
//
// Its one parameter is topology=FILE, read from the folder that buf runs in. It writes one file, asyncapi.yaml, and the
// same input gives the same bytes.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/throughline/throughline/scripts/internal/topology"
)

// output is the name of the one file that the plugin writes.
const output = "asyncapi.yaml"

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "protoc-gen-asyncapi:", err)
		os.Exit(1)
	}
}

// run answers the generator request on in with the one on out.
func run(in io.Reader, out io.Writer) error {
	raw, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	req := &pluginpb.CodeGeneratorRequest{}
	if err := proto.Unmarshal(raw, req); err != nil {
		return fmt.Errorf("decoding the request: %w", err)
	}
	path, ok := strings.CutPrefix(req.GetParameter(), "topology=")
	if !ok {
		return fmt.Errorf("parameter %q is not topology=FILE", req.GetParameter())
	}
	stream, err := topology.ReadEvents(path)
	if err != nil {
		return err
	}
	events, err := find(req)
	if err != nil {
		return err
	}
	if err := agree(stream.Subjects, events); err != nil {
		return fmt.Errorf("comparing the protos with %s: %w", path, err)
	}
	doc, err := document(stream, events)
	if err != nil {
		return err
	}
	resp := &pluginpb.CodeGeneratorResponse{
		SupportedFeatures: proto.Uint64(uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL)),
		File:              []*pluginpb.CodeGeneratorResponse_File{{Name: proto.String(output), Content: proto.String(doc)}},
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(resp)
	if err != nil {
		return fmt.Errorf("encoding the response: %w", err)
	}
	if _, err := out.Write(b); err != nil {
		return fmt.Errorf("writing the response: %w", err)
	}
	return nil
}
