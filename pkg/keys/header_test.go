package keys_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"

	"github.com/throughline/throughline/pkg/keys"
)

func TestParseHeader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", keys.MaxLen)
	for _, tc := range []struct {
		name   string
		values []string
		want   string
		err    *keys.HeaderError
	}{
		{name: "bare", values: []string{"k-a"}, want: "k-a"},
		{name: "quoted", values: []string{`"k-a"`}, want: "k-a"},
		{name: "parameters ignored", values: []string{`"k-b";v=2`}, want: "k-b"},
		{name: "escaped quote", values: []string{`"k\"c"`}, want: `k"c`},
		{name: "escaped backslash", values: []string{`"k\\c"`}, want: `k\c`},
		{name: "bare quote inside", values: []string{`k"c`}, want: `k"c`},
		{name: "bare backslash", values: []string{`k\d`}, want: `k\d`},
		{name: "uuid that begins with a digit", values: []string{"8e03978e-40d5-43e8-bc93-6894a57f9324"}, want: "8e03978e-40d5-43e8-bc93-6894a57f9324"},
		{name: "uuid that begins with a letter", values: []string{"ee03978e-40d5-43e8-bc93-6894a57f9324"}, want: "ee03978e-40d5-43e8-bc93-6894a57f9324"},
		{name: "case kept", values: []string{"KeY"}, want: "KeY"},
		{name: "outer blanks", values: []string{" \t k \t "}, want: "k"},
		{name: "outer blanks around quotes", values: []string{` "k" `}, want: "k"},
		{name: "blanks inside quotes kept", values: []string{`" k "`}, want: " k "},
		{name: "bare blank inside", values: []string{"a b"}, want: "a b"},
		{name: "bare parameters are text", values: []string{"k;v=2"}, want: "k;v=2"},
		{name: "quoted comma", values: []string{`"a, b"`}, want: "a, b"},
		{name: "longest bare", values: []string{long}, want: long},
		{name: "longest quoted", values: []string{`"` + long + `"`}, want: long},
		{name: "longest after unescaping", values: []string{`"` + strings.Repeat(`\"`, keys.MaxLen) + `"`}, want: strings.Repeat(`"`, keys.MaxLen)},

		{name: "no header", values: nil, err: keys.ErrMissing},
		{name: "two lines", values: []string{"a", "b"}, err: keys.ErrRepeated},
		{name: "two equal lines", values: []string{"a", "a"}, err: keys.ErrRepeated},
		{name: "empty", values: []string{""}, err: keys.ErrEmpty},
		{name: "blanks only", values: []string{" \t"}, err: keys.ErrEmpty},
		{name: "empty quotes", values: []string{`""`}, err: keys.ErrEmpty},
		{name: "empty quotes with parameter", values: []string{`"";a`}, err: keys.ErrEmpty},
		{name: "unterminated", values: []string{`"k-d`}, err: keys.ErrMalformed},
		{name: "lone quote", values: []string{`"`}, err: keys.ErrMalformed},
		{name: "bad escape", values: []string{`"k\d"`}, err: keys.ErrMalformed},
		{name: "text after quotes", values: []string{`"k"x`}, err: keys.ErrMalformed},
		{name: "list of quoted", values: []string{`"a", "b"`}, err: keys.ErrMalformed},
		{name: "bare lines joined by a proxy", values: []string{"a, a"}, err: keys.ErrMalformed},
		{name: "bare comma", values: []string{"a,b"}, err: keys.ErrMalformed},
		{name: "UTF-8", values: []string{"\"cl\xc3\xa9\""}, err: keys.ErrNotPrintable},
		{name: "bare UTF-8", values: []string{"cl\xc3\xa9"}, err: keys.ErrNotPrintable},
		{name: "Latin-1", values: []string{"\"cl\xe9\""}, err: keys.ErrNotPrintable},
		{name: "NUL", values: []string{"k\x00"}, err: keys.ErrNotPrintable},
		{name: "line feed", values: []string{"k\nx"}, err: keys.ErrNotPrintable},
		{name: "tab inside", values: []string{"k\tx"}, err: keys.ErrNotPrintable},
		{name: "DEL", values: []string{"k\x7f"}, err: keys.ErrNotPrintable},
		{name: "too long bare", values: []string{long + "k"}, err: keys.ErrTooLong},
		{name: "too long quoted", values: []string{`"` + long + `k"`}, err: keys.ErrTooLong},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := keys.ParseHeader(tc.values)
			if got != tc.want {
				t.Errorf("got key %q, want %q", got, tc.want)
			}
			if tc.err == nil {
				if err != nil {
					t.Errorf("got error %v, want none", err)
				}
				return
			}
			if !errors.Is(err, tc.err) {
				t.Errorf("got error %v, want %v", err, tc.err)
			}
			var he *keys.HeaderError
			if !errors.As(err, &he) || he.Reason != tc.err.Reason {
				t.Errorf("got %#v, want reason %s", err, tc.err.Reason)
			}
		})
	}
}

// FuzzParseHeader checks what every caller relies on: a key that comes out is fit
// for metadata, headers and the database, and quoting it gives the same key.
func FuzzParseHeader(f *testing.F) {
	for _, s := range []string{
		`k-a`, `"k-a"`, `"k-b";v=2`, `"k\"c"`, `"k-d`, `"k\d"`, "\"cl\xc3\xa9\"", "cl\xe9", ``, `""`,
		`a, b`, `"a", "b"`, ` "k" `, "8e03978e-40d5-43e8-bc93-6894a57f9324", `"k";`, `"k";a=?1;b=:AA==:`, `%"k"`, "\t\"k",
		strings.Repeat("k", 256), `"` + strings.Repeat(`\\`, 255) + `"`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := keys.ParseHeader([]string{value})
		if err != nil {
			var he *keys.HeaderError
			if !errors.As(err, &he) || he.Reason == "" {
				t.Fatalf("got %#v, want a HeaderError with a reason", err)
			}
			if key != "" {
				t.Fatalf("got key %q with error %v, want none", key, err)
			}
			return
		}
		if len(key) < 1 || len(key) > keys.MaxLen {
			t.Fatalf("got %d bytes, want 1 to %d", len(key), keys.MaxLen)
		}
		for _, c := range []byte(key) {
			if c < 0x20 || c > 0x7e {
				t.Fatalf("got byte %#x in %q, want printable ASCII", c, key)
			}
		}
		quoted, err := httpsfv.Marshal(httpsfv.NewItem(key))
		if err != nil {
			t.Fatalf("quoting %q: %v", key, err)
		}
		again, err := keys.ParseHeader([]string{quoted})
		if err != nil || again != key {
			t.Fatalf("got %q, %v from %s, want %q", again, err, quoted, key)
		}
	})
}
