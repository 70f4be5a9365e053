package grpcapi_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/throughline/throughline/services/gateway/internal/grpcapi"
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
		if got, ok := l.Authenticate(key); got != want || ok != (want != "") {
			t.Errorf("Authenticate(%q): got %q, %v, want %q", key, got, ok, want)
		}
	}
	empty, err := grpcapi.ParseKeyList("")
	if err != nil {
		t.Fatalf("ParseKeyList of nothing: %v", err)
	}
	if got, ok := empty.Authenticate(""); ok {
		t.Errorf("Authenticate without any key: got %q, want nobody", got)
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
