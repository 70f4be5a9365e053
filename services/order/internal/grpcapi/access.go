package grpcapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/telemetry"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/apikey"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// scopes is the form of the scopes on the wire.
var scopes = map[apikey.Scope]orderv1.Scope{
	apikey.OrdersRead:  orderv1.Scope_SCOPE_ORDERS_READ,
	apikey.OrdersWrite: orderv1.Scope_SCOPE_ORDERS_WRITE,
}

// Access is AccessService, for the gateway.
type Access struct {
	orderv1.UnimplementedAccessServiceServer
	pool  *pgxpool.Pool
	terms orderv1.GetTermsResponse
}

// NewAccess makes an AccessService. keyLifetime is how long answers are kept.
func NewAccess(pool *pgxpool.Pool, keyLifetime time.Duration) *Access {
	a := &Access{pool: pool}
	a.terms.KeyLifetimeSeconds = int64(keyLifetime / time.Second)
	// As the connections tell the database, in milliseconds.
	a.terms.InProgressWaitMillis, _ = strconv.ParseInt(pool.Config().ConnConfig.RuntimeParams["lock_timeout"], 10, 64)
	return a
}

// GetTerms tells what this service is set to.
func (a *Access) GetTerms(context.Context, *orderv1.GetTermsRequest) (*orderv1.GetTermsResponse, error) {
	return &a.terms, nil
}

// ResolveKey tells whose a key is.
func (a *Access) ResolveKey(ctx context.Context, req *orderv1.ResolveKeyRequest) (*orderv1.ResolveKeyResponse, error) {
	key, err := postgres.FindKey(ctx, a.pool, req.GetPrefix(), req.GetSha256())
	switch {
	case errors.Is(err, postgres.ErrNoClient):
		return &orderv1.ResolveKeyResponse{}, nil
	case err != nil:
		return nil, explain(ctx, err)
	}
	return &orderv1.ResolveKeyResponse{ClientId: key.ClientID, Scopes: scopesOf(key.Scopes)}, nil
}

// Clients is ClientService, for operators.
type Clients struct {
	orderv1.UnimplementedClientServiceServer
	pool *pgxpool.Pool
	log  *slog.Logger
}

// NewClients makes a ClientService.
func NewClients(pool *pgxpool.Pool, log *slog.Logger) *Clients { return &Clients{pool: pool, log: log} }

// maxOverlap bounds how long an old key may go on beside its successor. Whoever needs longer has not replaced it.
const maxOverlap = 90 * 24 * time.Hour

// AddKey gives a client a key.
func (c *Clients) AddKey(ctx context.Context, req *orderv1.AddKeyRequest) (*orderv1.AddKeyResponse, error) {
	var vs []order.Violation
	fail := func(path, detail string) { vs = append(vs, order.Violation{Path: path, Detail: detail}) }
	if !apikey.ValidClientID(req.GetClientId()) {
		fail("client_id", "must have 1 to 64 of the characters a-z, 0-9, - and _")
	}
	if !apikey.ValidPrefix(req.GetPrefix()) {
		fail("prefix", "is not that of a key")
	}
	if len(req.GetSha256()) != sha256.Size {
		fail("sha256", "must have 32 bytes")
	}
	names := namesOf(req.GetScopes())
	if len(names) == 0 || len(names) != len(req.GetScopes()) {
		fail("scopes", "must have each scope once, and at least one")
	}
	var othersEnd *time.Duration
	if req.RevokeOthersAfterSeconds != nil {
		after := req.GetRevokeOthersAfterSeconds()
		if after < 0 || after > int64(maxOverlap/time.Second) {
			fail("revoke_others_after_seconds", "must be from 0 to 90 days")
		} else {
			d := time.Duration(after) * time.Second
			othersEnd = &d
		}
	}
	if len(vs) > 0 {
		return nil, invalid(vs)
	}
	added, err := postgres.AddKey(ctx, c.pool, postgres.ClientKey{
		ClientID: req.GetClientId(), Prefix: req.GetPrefix(), Hash: req.GetSha256(), Scopes: names,
	}, othersEnd)
	switch {
	case errors.Is(err, postgres.ErrKeyTaken):
		return nil, invalid([]order.Violation{{Path: "prefix", Detail: "is that of another key"}})
	case err != nil:
		return nil, explain(ctx, err)
	}
	c.log.InfoContext(ctx, "client key added", telemetry.LogClientID, req.GetClientId(), "prefix", req.GetPrefix(), "scopes", names)
	return &orderv1.AddKeyResponse{Key: keyOf(added)}, nil
}

// RevokeKeys ends keys of a client.
func (c *Clients) RevokeKeys(ctx context.Context, req *orderv1.RevokeKeysRequest) (*orderv1.RevokeKeysResponse, error) {
	keys, err := postgres.RevokeKeys(ctx, c.pool, req.GetClientId(), req.GetPrefix())
	switch {
	case errors.Is(err, postgres.ErrNoClient):
		return nil, grpcx.Error(grpcx.UnknownName, "there is no such client, or it has no such key")
	case err != nil:
		return nil, explain(ctx, err)
	}
	c.log.InfoContext(ctx, "client keys revoked", telemetry.LogClientID, req.GetClientId(), "prefix", req.GetPrefix())
	resp := new(orderv1.RevokeKeysResponse)
	for _, k := range keys {
		resp.Keys = append(resp.Keys, keyOf(k))
	}
	return resp, nil
}

// ListClients answers with all clients.
func (c *Clients) ListClients(ctx context.Context, _ *orderv1.ListClientsRequest) (*orderv1.ListClientsResponse, error) {
	clients, err := postgres.Clients(ctx, c.pool)
	if err != nil {
		return nil, explain(ctx, err)
	}
	resp := new(orderv1.ListClientsResponse)
	for _, client := range clients {
		one := &orderv1.Client{ClientId: client.ClientID, CreatedAt: timestamppb.New(client.CreatedAt)}
		for _, k := range client.Keys {
			one.Keys = append(one.Keys, keyOf(k))
		}
		resp.Clients = append(resp.Clients, one)
	}
	return resp, nil
}

func keyOf(k postgres.ClientKey) *orderv1.ClientKey {
	m := &orderv1.ClientKey{Prefix: k.Prefix, Scopes: scopesOf(k.Scopes), CreatedAt: timestamppb.New(k.CreatedAt)}
	if k.RevokedAt != nil {
		m.RevokedAt = timestamppb.New(*k.RevokedAt)
	}
	return m
}

func scopesOf(names []string) []orderv1.Scope {
	all := make([]orderv1.Scope, 0, len(names))
	for _, n := range names {
		if s, ok := scopes[apikey.Scope(n)]; ok { // a scope of a newer release is for a newer gateway
			all = append(all, s)
		}
	}
	return all
}

// namesOf gives the names of scopes as they are stored: sorted, each once, and those that there are.
func namesOf(wanted []orderv1.Scope) []string {
	var names []string
	for _, s := range apikey.Scopes() {
		if slices.Contains(wanted, scopes[s]) {
			names = append(names, string(s))
		}
	}
	return names
}
