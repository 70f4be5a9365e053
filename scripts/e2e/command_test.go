package e2e_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/throughline/throughline/proto/storefront"
	"github.com/throughline/throughline/scripts/e2e/system"
)

// TestCustomerCommands places, shows and cancels orders from the command line, and reads the codes that scripts go by.
func TestCustomerCommands(t *testing.T) {
	t.Parallel()
	s := system.Launch(t, system.Options{Environ: []string{"THROUGHLINE_UP_JSON=true"}})
	ctx := system.Context(t, patience)
	system.Eventually(ctx, t, "the system to say that it is up", func() bool { return strings.Contains(s.Output(), `{"event":"up"`) })
	run := func(stdin string, args ...string) (out, complaint string, code int) {
		t.Helper()
		cmd := exec.CommandContext(ctx, system.Binary(t), append(args, "--url", s.URL)...)
		var stdout, stderr strings.Builder
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
		if err := cmd.Run(); err != nil {
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok {
				t.Fatalf("throughline %v: %v", args, err)
			}
			code = exit.ExitCode()
		}
		return stdout.String(), stderr.String(), code
	}
	want := func(code int, stdin, text string, args ...string) string {
		t.Helper()
		out, complaint, got := run(stdin, args...)
		if got != code || !strings.Contains(out+complaint, text) {
			t.Fatalf("throughline %v ended with %d and said %q and %q; want %d and %q", args, got, out, complaint, code, text)
		}
		return out
	}

	var placed struct {
		Replayed bool
		Key      string `json:"idempotency_key"`
		Order    storefront.Order
	}
	read := func(out string) {
		t.Helper()
		if err := json.Unmarshal([]byte(out), &placed); err != nil {
			t.Fatalf("not one JSON object: %v\n%s", err, out)
		}
	}
	read(want(0, "", "", "place", "--key", "by-hand", "--line", "urn:tea:1:2:300", "--wait", "60s", "--json"))
	first := placed.Order
	if placed.Replayed || placed.Key != "by-hand" || first.Status != storefront.Confirmed || first.Total != 600 || first.Lines[0].SKU != "urn:tea:1" {
		t.Errorf("placed %+v; want a confirmed order of 2 x urn:tea:1 at 300", placed)
	}
	read(want(0, "", "", "place", "--key", "by-hand", "--line", "urn:tea:1:2:300", "--json"))
	if !placed.Replayed || placed.Order.ID != first.ID {
		t.Errorf("the same again: %+v; want a replay of %s", placed, first.ID)
	}
	want(5, "", "KEY_MISMATCH", "place", "--key", "by-hand", "--line", "urn:tea:1:3:300")
	want(0, "", "2 x \"urn:tea:1\" at 300", "get", first.ID)
	want(3, "", "ORDER_NOT_FOUND", "get", "00000000-0000-4000-8000-000000000000")
	want(5, "", "CANCEL_TOO_LATE", "cancel", first.ID)

	declined, err := json.Marshal(storefront.NewOrder{
		Currency: "EUR", Lines: first.Lines, ShipTo: first.ShipTo, PaymentMethod: "pm_card_chargeDeclined",
	})
	if err != nil {
		t.Fatal(err)
	}
	want(5, string(declined), "FAILED: card_declined", "place", "--file", "-", "--wait", "60s")
	want(1, `{"currencies":"EUR"}`, `unknown field "currencies"`, "place", "--file", "-")
	want(1, "", "not SKU:QUANTITY:PRICE", "place", "--line", "tea:2")
	want(5, "", "401", "place", "--api-key", "tl_wrong")

	// An order that waits for its customer can be cancelled, and says what it waits for.
	waiting, err := json.Marshal(storefront.NewOrder{
		Currency: "EUR", Lines: first.Lines, ShipTo: first.ShipTo, PaymentMethod: "pm_card_authenticationRequired",
	})
	if err != nil {
		t.Fatal(err)
	}
	read(want(0, string(waiting), "", "place", "--file", "-", "--key", "to-cancel", "--json"))
	system.Eventually(ctx, t, "the order to wait for its customer", func() bool {
		out, _, _ := run("", "get", placed.Order.ID)
		return strings.Contains(out, "waits    for the customer: redirect_to_url http")
	})
	want(0, "", placed.Order.ID, "cancel", placed.Order.ID, "--key", "the-cancel", "--reason", "changed my mind")
	want(0, "", "a replay", "cancel", placed.Order.ID, "--key", "the-cancel", "--reason", "changed my mind")
	system.Eventually(ctx, t, "the order to be cancelled", func() bool {
		return strings.Contains(want(0, "", "", "get", placed.Order.ID, "--wait", "20s"), "CANCELLED")
	})
	operatorCommands(ctx, t, s, first.ID)
	s.Check(ctx)
	if status := s.Stop(); status != 0 || !strings.HasSuffix(s.Output(), "{\"event\":\"stopped\"}\n") {
		t.Errorf("stopping: got %d and %q, want 0, and that it has stopped", status, s.Output())
	}
}
