package apikey_test

import (
	"strings"
	"testing"

	"github.com/throughline/throughline/services/internal/apikey"
)

func TestMint(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		k := apikey.Mint()
		if prefix, ok := apikey.Prefix(k.Text); !ok || prefix != k.Prefix || !strings.HasPrefix(k.Text, prefix+"_") {
			t.Fatalf("got prefix %q, %v of %q, want %q", prefix, ok, k.Text, k.Prefix)
		}
		if seen[k.Prefix] || seen[k.Text] {
			t.Fatalf("got %q twice", k.Text)
		}
		seen[k.Prefix], seen[k.Text] = true, true
		if k.Hash != apikey.Hash(k.Text) || k.Hash == apikey.Hash(k.Text[:len(k.Text)-1]) {
			t.Errorf("got a hash that is not that of the whole key")
		}
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	k := apikey.Mint().Text
	for _, bad := range []string{
		"", "tl_", "tl_dev_storefront", k[:len(k)-1], k + "x", "x" + k[1:], strings.ToUpper(k), strings.Replace(k, "_", "-", 2), k[:15] + "x" + k[16:],
		strings.Repeat("é", len(k)/2),
	} {
		if prefix, ok := apikey.Prefix(bad); ok {
			t.Errorf("%q: got prefix %q, want none", bad, prefix)
		}
	}
}

func TestValidClientID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"a": true, "store-front_2": true, strings.Repeat("a", 64): true,
		"": false, strings.Repeat("a", 65): false, "A": false, "a b": false, "é": false, "a=b": false, "a,b": false,
	} {
		if got := apikey.ValidClientID(id); got != want {
			t.Errorf("%q: got %v, want %v", id, got, want)
		}
	}
}
