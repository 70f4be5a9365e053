package grpcapi_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/throughline/throughline/services/gateway/internal/grpcapi"
	"github.com/throughline/throughline/services/internal/apikey"
	"github.com/throughline/throughline/services/internal/grpcx"
)

func TestKeyList(t *testing.T) {
	t.Parallel()
	const a, a2, b = "aaaaaaaaaaaaaaaa", "a-second-key-of-it", "b=bbbbbbbbbbbbbbb"
	l, err := grpcapi.ParseKeyList(" shop=" + a + ", ,shop=" + a2 + ",mar_ket-2=" + b + ",")
	if err != nil {
		t.Fatalf("ParseKeyList: %v", err)
	}
	if got := l.Len(); got != 3 {
		t.Errorf("Len: got %d, want 3", got)
	}
	for key, want := range map[string]string{a: "shop", a2: "shop", b: "mar_ket-2", "": "", a[1:]: "", a + "a": "", strings.ToUpper(a): ""} {
		got, err := l.Authenticate(t.Context(), key)
		if got.ID != want || (err == nil) != (want != "") || want == "" && grpcx.ReasonOf(err) != grpcx.Unauthenticated {
			t.Errorf("Authenticate(%q): got %v, %v, want %q", key, got, err, want)
		}
		if want != "" && (!got.May(apikey.OrdersRead) || !got.May(apikey.OrdersWrite)) {
			t.Errorf("Authenticate(%q): got scopes %v, want all", key, got.Scopes)
		}
	}
	empty, err := grpcapi.ParseKeyList("")
	if err != nil {
		t.Fatalf("ParseKeyList of nothing: %v", err)
	}
	if got, err := empty.Authenticate(t.Context(), ""); err == nil {
		t.Errorf("Authenticate without any key: got %v, want nobody", got)
	}
}

func TestKeyListRefuses(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-hunter2-hunter2"
	for _, list := range []string{
		secret, "=" + secret, "Shop=" + secret, "a b=" + secret, strings.Repeat("a", 65) + "=" + secret, "shop=", "shop=short",
		"shop=" + strings.Repeat("x", 256), "shop=hunter2 hunter2 hunter2", "shop=hunter2-hunter2-é", "shop=" + secret + ",market=" + secret,
		"shop=" + secret + ",shop=" + secret,
	} {
		_, err := grpcapi.ParseKeyList(list)
		if !errors.Is(err, grpcapi.ErrAPIKeys) {
			t.Errorf("ParseKeyList(%q): got %v, want ErrAPIKeys", list, err)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("ParseKeyList(%q): the error tells the key: %v", list, err)
		}
	}
}
