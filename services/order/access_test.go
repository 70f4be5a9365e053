package order_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/apikey"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// Clients and their keys, as operators manage them and the gateway sees them.
func TestClientKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	connect := func(credential string) *grpc.ClientConn {
		conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: c.addr, Credential: credential})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	operators := orderv1.NewClientServiceClient(connect(operatorCredential))
	access := orderv1.NewAccessServiceClient(connect(credential))

	if _, err := orderv1.NewClientServiceClient(connect(credential)).ListClients(ctx, &orderv1.ListClientsRequest{}); grpcx.ReasonOf(err) != grpcx.Unauthenticated {
		t.Errorf("operators' call with the service credential: got %v, want %s", err, grpcx.Unauthenticated)
	}
	if _, err := orderv1.NewAccessServiceClient(connect(operatorCredential)).ResolveKey(ctx, &orderv1.ResolveKeyRequest{}); grpcx.ReasonOf(err) != grpcx.Unauthenticated {
		t.Errorf("a service's call with the operator credential: got %v, want %s", err, grpcx.Unauthenticated)
	}

	if got, err := access.GetTerms(ctx, &orderv1.GetTermsRequest{}); err != nil || got.GetKeyLifetimeSeconds() != 24*60*60 || got.GetInProgressWaitMillis() != 2000 {
		t.Errorf("terms: got %v, %v, want a lifetime of 24 h and a wait of 2 s", got, err)
	}

	both := []orderv1.Scope{orderv1.Scope_SCOPE_ORDERS_WRITE, orderv1.Scope_SCOPE_ORDERS_READ}
	add := func(client string, k apikey.Key, othersAfter *int64, scopes ...orderv1.Scope) (*orderv1.ClientKey, error) {
		resp, err := operators.AddKey(ctx, &orderv1.AddKeyRequest{
			ClientId: client, Prefix: k.Prefix, Sha256: k.Hash[:], Scopes: scopes, RevokeOthersAfterSeconds: othersAfter,
		})
		return resp.GetKey(), err
	}
	owner := func(k apikey.Key) string {
		t.Helper()
		resp, err := access.ResolveKey(ctx, &orderv1.ResolveKeyRequest{Prefix: k.Prefix, Sha256: k.Hash[:]})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetClientId()
	}
	wantOwner := func(when string, k apikey.Key, want string) {
		t.Helper()
		if got := owner(k); got != want {
			t.Errorf("%s: got owner %q, want %q", when, got, want)
		}
	}

	first, second, third := apikey.Mint(), apikey.Mint(), apikey.Mint()
	wantOwner("before it was added", first, "")
	for range 2 { // it may be repeated
		if k, err := add("shop", first, nil, both...); err != nil || k.GetPrefix() != first.Prefix || len(k.GetScopes()) != 2 || k.GetRevokedAt() != nil {
			t.Errorf("adding a key: got %v, %v", k, err)
		}
	}
	wantOwner("added", first, "shop")
	forged := first
	forged.Hash = apikey.Hash("another")
	wantOwner("the prefix with another hash", forged, "")

	for name, bad := range map[string]func() error{
		"another client's": func() error { _, err := add("market", first, nil, both...); return err },
		"another hash":     func() error { _, err := add("shop", forged, nil, both...); return err },
		"other scopes":     func() error { _, err := add("shop", first, nil, both[0]); return err },
		"no scope":         func() error { _, err := add("shop", second, nil); return err },
		"scope twice":      func() error { _, err := add("shop", second, nil, both[0], both[0]); return err },
		"client id":        func() error { _, err := add("Shop", second, nil, both...); return err },
		"prefix": func() error {
			_, err := add("shop", apikey.Key{Prefix: "tl_dev", Hash: first.Hash}, nil, both...)
			return err
		},
		"negative overlap": func() error { n := int64(-1); _, err := add("shop", second, &n, both...); return err },
	} {
		if err := bad(); grpcx.ReasonOf(err) != grpcx.RequestInvalid {
			t.Errorf("%s: got %v, want %s", name, err, grpcx.RequestInvalid)
		}
	}

	hour, now := int64(3600), int64(0)
	if _, err := add("shop", second, &hour, both[0]); err != nil {
		t.Fatal(err)
	}
	wantOwner("while its successor is handed out", first, "shop")
	if _, err := add("shop", third, &now, both...); err != nil {
		t.Fatal(err)
	}
	for _, k := range []apikey.Key{first, second} {
		wantOwner("replaced", k, "")
	}
	wantOwner("the successor", third, "shop")

	if _, err := operators.RevokeKeys(ctx, &orderv1.RevokeKeysRequest{ClientId: "nobody"}); grpcx.ReasonOf(err) != grpcx.UnknownName {
		t.Errorf("revoking nobody's keys: got %v, want %s", err, grpcx.UnknownName)
	}
	if _, err := operators.RevokeKeys(ctx, &orderv1.RevokeKeysRequest{ClientId: "shop", Prefix: "tl_aaaaaaaaaaaa"}); grpcx.ReasonOf(err) != grpcx.UnknownName {
		t.Errorf("revoking a key that there is not: got %v, want %s", err, grpcx.UnknownName)
	}
	for range 2 {
		resp, err := operators.RevokeKeys(ctx, &orderv1.RevokeKeysRequest{ClientId: "shop", Prefix: third.Prefix})
		if err != nil || len(resp.GetKeys()) != 3 || resp.GetKeys()[2].GetRevokedAt() == nil {
			t.Errorf("revoking a key: got %v, %v, want three keys that have ended", resp, err)
		}
	}
	wantOwner("revoked", third, "")

	list, err := operators.ListClients(ctx, &orderv1.ListClientsRequest{})
	if err != nil || len(list.GetClients()) != 1 || list.GetClients()[0].GetClientId() != "shop" || len(list.GetClients()[0].GetKeys()) != 3 {
		t.Errorf("listing: got %v, %v, want shop with three keys", list, err)
	}
	if n := w.count(`SELECT count(*) FROM client_key WHERE position(convert_to($1, 'UTF8') in key_sha256) > 0 OR prefix = $1`, first.Text); n != 0 {
		t.Errorf("got %d rows with a key in them, want none", n)
	}
}
