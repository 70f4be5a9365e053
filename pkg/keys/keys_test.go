package keys_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
)

// The vectors of the package comment, computed with another language's library.
func TestVectors(t *testing.T) {
	t.Parallel()
	order := keys.OrderID("storefront", "cart-17")
	step := keys.StepKey(order, "authorize_payment")
	for _, tc := range []struct {
		name string
		got  uuid.UUID
		want string
	}{
		{"order", order, "bc765b28-bc4d-58fd-a83e-d135647f37a8"},
		{"step", step, "5665917c-6373-5fb0-9b0b-bdabd76539bc"},
		{"provider", keys.ProviderKey(step, "payment_intents.create"), "75ed65ec-e66d-53c0-8e81-6acb925dacbe"},
		{"request", keys.RequestID("storefront", "orders.cancel", "cart-17-cancel"), "ade94cd8-fd69-5715-8f8f-b1059d3363ac"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.got.String() != tc.want {
				t.Errorf("got %s, want %s", tc.got, tc.want)
			}
			if tc.got.Version() != 5 || tc.got.Variant() != uuid.RFC4122 {
				t.Errorf("got version %d, variant %v, want 5, RFC 9562", tc.got.Version(), tc.got.Variant())
			}
		})
	}
}

// Every input here must have an identity of its own, whatever separator an
// implementation might have glued the parts with.
func TestDerivationsKeepApart(t *testing.T) {
	t.Parallel()
	parts := [][3]string{
		{"ab", "c", ""}, {"a", "bc", ""}, {"", "abc", ""}, {"abc", "", ""}, {"", "", "abc"},
		{"a:b", "c", ""}, {"a", "b:c", ""}, {"a\x00b", "c", ""}, {"a", "b\x00c", ""}, {"A", "bc", ""},
	}
	seen := map[uuid.UUID]string{}
	add := func(id uuid.UUID, what string) {
		if before, ok := seen[id]; ok {
			t.Errorf("%s and %s are both %s", before, what, id)
		}
		seen[id] = what
	}
	for _, p := range parts {
		add(keys.RequestID(p[0], p[1], p[2]), fmt.Sprintf("request %q", p))
	}
	for _, p := range parts[:4] {
		add(keys.OrderID(p[0], p[1]), fmt.Sprintf("order %q", p[:2]))
	}
	order := keys.OrderID("storefront", "k")
	add(order, "the order")
	add(keys.StepKey(order, "a"), "step a")
	add(keys.StepKey(order, "b"), "step b")
	add(keys.ProviderKey(keys.StepKey(order, "a"), "x"), "operation x")
	add(keys.ProviderKey(keys.StepKey(order, "b"), "x"), "operation x of b")
}

func TestNewMessageID(t *testing.T) {
	t.Parallel()
	const perGoroutine = 20_000 // some thousand a millisecond: many share one
	all := make([][]uuid.UUID, 4)
	var wg sync.WaitGroup
	for g := range all {
		wg.Go(func() {
			ids := make([]uuid.UUID, perGoroutine)
			for i := range ids {
				ids[i] = keys.NewMessageID()
			}
			all[g] = ids
		})
	}
	wg.Wait()
	seen := make(map[uuid.UUID]bool, len(all)*perGoroutine)
	milliseconds := map[string]bool{}
	for _, ids := range all {
		for i, id := range ids {
			if i > 0 && bytes.Compare(ids[i-1][:], id[:]) >= 0 {
				t.Fatalf("id %d: got %s, want more than %s", i, id, ids[i-1])
			}
			if seen[id] {
				t.Fatalf("got %s twice", id)
			}
			seen[id] = true
			milliseconds[string(id[:6])] = true
		}
		if v := ids[0].Version(); v != 7 {
			t.Errorf("got version %d, want 7", v)
		}
	}
	// Or the order within a millisecond was never put to the test.
	if len(milliseconds)*2 > len(seen) {
		t.Errorf("got %d ids in %d milliseconds, want many in each", len(seen), len(milliseconds))
	}
}

func BenchmarkNewMessageID(b *testing.B) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			keys.NewMessageID()
		}
	})
}

func BenchmarkOrderID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		keys.OrderID("storefront", "8e03978e-40d5-43e8-bc93-6894a57f9324")
	}
}

func Example() {
	key, err := keys.ParseHeader([]string{`"cart-17"`})
	if err != nil {
		fmt.Println(err)
		return
	}
	order := keys.OrderID("storefront", key)
	step := keys.StepKey(order, "authorize_payment")
	fmt.Println("key     ", key)
	fmt.Println("order   ", order)
	fmt.Println("step    ", step)
	fmt.Println("provider", keys.ProviderKey(step, "payment_intents.create"))

	a, b := keys.NewMessageID(), keys.NewMessageID()
	fmt.Println("ordered ", slices.IsSortedFunc([]uuid.UUID{a, b}, func(a, b uuid.UUID) int {
		return strings.Compare(a.String(), b.String())
	}))
	// Output:
	// key      cart-17
	// order    bc765b28-bc4d-58fd-a83e-d135647f37a8
	// step     5665917c-6373-5fb0-9b0b-bdabd76539bc
	// provider 75ed65ec-e66d-53c0-8e81-6acb925dacbe
	// ordered  true
}
