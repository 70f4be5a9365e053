// Command protoc-gen-openapiv3-rules is a protoc plugin that writes the public API's OpenAPI document.
//
// It stands in front of protoc-gen-openapiv3, which reads HTTP rules from annotations in the protos only: ours live in a
// gRPC API configuration file, so that no third-party proto is copied in. The plugin puts the rules of that file into the
// descriptors, runs protoc-gen-openapiv3 on them, and then completes its document with what a proto cannot say: problem
// responses, the Idempotency-Key header, the status of each answer, and our JSON form.
//
// Its one parameter is rules=FILE, read from the folder that buf runs in. It writes one file, openapi.yaml, and the same
// input gives the same bytes.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "protoc-gen-openapiv3-rules:", err)
		os.Exit(1)
	}
}

// run answers the generator request on in with the one on out.
func run(ctx context.Context, in io.Reader, out io.Writer) error {
	raw, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	req := &pluginpb.CodeGeneratorRequest{}
	if err := proto.Unmarshal(raw, req); err != nil {
		return fmt.Errorf("decoding the request: %w", err)
	}
	path, rest, err := takeRules(req.GetParameter())
	if err != nil {
		return err
	}
	config, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the HTTP rules: %w", err)
	}
	if err := annotate(req, config); err != nil {
		return fmt.Errorf("applying %s: %w", path, err)
	}
	req.Parameter = proto.String(rest)

	resp, err := generate(ctx, req)
	if err != nil {
		return err
	}
	if err := finish(resp); err != nil {
		return err
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

// generate runs protoc-gen-openapiv3, pinned by the tool line of this module, on req.
func generate(ctx context.Context, req *pluginpb.CodeGeneratorRequest) (*pluginpb.CodeGeneratorResponse, error) {
	in, err := proto.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encoding the request: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "protoc-gen-openapiv3")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running protoc-gen-openapiv3: %w", err)
	}
	resp := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(out, resp); err != nil {
		return nil, fmt.Errorf("decoding the answer of protoc-gen-openapiv3: %w", err)
	}
	return resp, nil
}
