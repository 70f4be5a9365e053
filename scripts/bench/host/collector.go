package host

import (
	"context"
	"fmt"
	"io"
	"net"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// unread neither reads what comes nor writes an answer, which is a message without fields. What a collector makes of traces is its own
// affair, and it would take from what it is to measure: it has the processors of this machine, where others have their own.
type unread struct{}

func (unread) Marshal(any) (mem.BufferSlice, error) { return nil, nil }
func (unread) Unmarshal(mem.BufferSlice, any) error { return nil }
func (unread) Name() string                         { return "unread" }

// sink takes traces and forgets them.
type sink struct {
	collectorpb.UnimplementedTraceServiceServer
}

// Export implements the collector's service.
func (sink) Export(context.Context, *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// collector serves a sink for traces.
func collector(io.Writer) (a Answer, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
	if err != nil {
		return a, nil, fmt.Errorf("listening for traces: %w", err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(unread{}))
	collectorpb.RegisterTraceServiceServer(server, sink{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	return Answer{URL: "http://" + l.Addr().String()}, func() error {
		server.Stop()
		return <-served
	}, nil
}
