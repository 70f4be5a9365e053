package grpcx

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// Names of metadata entries. traceparent and tracestate travel too; the stats handlers write and read them.
const (
	// MetadataAuthorization carries "Bearer " and a credential: an API key from the public, the service credential
	// between services.
	MetadataAuthorization = "authorization"
	// MetadataIdempotencyKey carries the client's key: as a header value would from the public, parsed between services.
	MetadataIdempotencyKey = "idempotency-key"
	// MetadataClientID names the client that a service acts for. The gateway writes it, from the API key; services read it.
	MetadataClientID = "client-id"
	// MetadataReplayed is in the header of an answer, with the value "true", when it repeats an earlier one. The order
	// service writes it; the gateway passes it on.
	MetadataReplayed = "idempotency-replayed"
	// MetadataKeyExpired is in the header of an answer, with the value "true", when the key was used before, so that nothing was done,
	// and the first answer is no longer kept: the answer shows the order as it is now. The order service writes it; the gateway passes it on.
	MetadataKeyExpired = "idempotency-key-expired"
	// MetadataHTTPBody is in the header of an answer: its JSON, as it was stored. The order service writes it; the
	// gateway serves it as it is, so that repeats have the same bytes whichever release renders.
	MetadataHTTPBody = "http-body-bin"
)

// Entries are what a service tells another one beside the request. Empty ones are not sent.
type Entries struct {
	// ClientID is the client on whose behalf the call is made.
	ClientID string
	// IdempotencyKey is the client's key, parsed: printable ASCII, 1 to 255 bytes.
	IdempotencyKey string
}

// Outgoing answers ctx with exactly these entries as outgoing metadata. Whatever outgoing metadata ctx had is gone.
func Outgoing(ctx context.Context, e Entries) context.Context {
	md := metadata.MD{}
	if e.ClientID != "" {
		md.Set(MetadataClientID, e.ClientID)
	}
	if e.IdempotencyKey != "" {
		md.Set(MetadataIdempotencyKey, e.IdempotencyKey)
	}
	return metadata.NewOutgoingContext(ctx, md)
}

// ClientID answers the client on whose behalf another service makes this call. Without exactly one such entry it fails
// with INTERNAL: our own services send it, so that it is their mistake and not the client's.
func ClientID(ctx context.Context) (string, error) {
	values := Incoming(ctx, MetadataClientID)
	if len(values) != 1 || values[0] == "" {
		return "", Error(Internal, "the call names no client")
	}
	return values[0], nil
}

// IdempotencyKey answers the client's key as another service passed it on, which is as keys.ParseHeader gave it. It fails
// with KEY_MISSING, KEY_REPEATED or KEY_EMPTY.
func IdempotencyKey(ctx context.Context) (string, error) {
	values := Incoming(ctx, MetadataIdempotencyKey)
	switch {
	case len(values) == 0:
		return "", Error(KeyMissing, "the call has no idempotency-key entry")
	case len(values) > 1:
		return "", Error(KeyRepeated, "the call has several idempotency-key entries")
	case values[0] == "":
		return "", Error(KeyEmpty, "the idempotency-key entry is empty")
	}
	return values[0], nil
}

// Incoming answers all values of an incoming metadata entry.
func Incoming(ctx context.Context, name string) []string {
	return metadata.ValueFromIncomingContext(ctx, name)
}
