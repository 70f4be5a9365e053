package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// TestUpRealServers runs the services on servers that exist already.
func TestUpRealServers(t *testing.T) {
	t.Parallel()
	servers := []string{"NATS_URL=" + messagingtest.New(t).URL()}
	for _, service := range []string{"ORDER", "PAYMENT", "SHIPPING"} {
		servers = append(servers, fmt.Sprintf("%s_DATABASE_URL=%s", service, pgtest.URL(t)))
	}
	ctx := system.Context(t, 2*time.Minute)

	for _, tc := range []struct {
		name    string
		environ []string
		want    string
	}{
		{"a development client", append(servers[:4:4], "THROUGHLINE_API_KEYS=storefront=tl_dev_storefront"), "development"},
		{"a server missing", append(servers[:3:3], "THROUGHLINE_API_KEYS=storefront=a-key-of-its-own"), "SHIPPING_DATABASE_URL"},
	} {
		s := system.Launch(t, system.Options{Environ: tc.environ})
		if status := s.Wait(ctx); status == 0 {
			t.Errorf("%s: exit status 0, want an error", tc.name)
		}
		if !strings.Contains(s.Output(), tc.want) {
			t.Errorf("%s: got %q, want it to name %s", tc.name, s.Output(), tc.want)
		}
	}

	s := system.Start(t, system.Options{Environ: servers})
	if !strings.Contains(s.Output(), "throughline clients add") {
		t.Errorf("the banner does not say how to make a client:\n%s", s.Output())
	}
	shop := s.Storefront()
	if a, err := shop.Place(ctx, "k", system.Order{}); err != nil || a.Status != http.StatusUnauthorized {
		t.Errorf("a development key on real servers: got %v, %v; want 401", a, err)
	}
	shop.Key = clientsRun(ctx, t, s, "add", shop.ID)
	a, err := shop.Place(ctx, "k", system.Order{})
	if err != nil {
		t.Fatal(err)
	}
	if last := awaitRest(ctx, t, shop, a.Order.ID); last.Order.Status != verify.Confirmed {
		t.Errorf("order: got %s, want CONFIRMED", last.Order.Status)
	}
	if strings.Contains(s.Output(), "tl_dev_") {
		t.Errorf("the banner offers development clients on real servers:\n%s", s.Output())
	}
}
