package topology

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReadEventsOfTheServices(t *testing.T) {
	t.Parallel()
	e, err := ReadEvents(filepath.Join("../../..", File))
	if err != nil {
		t.Fatal(err)
	}
	if e.Stream == "" || e.MaxAge < time.Hour {
		t.Errorf("got stream %q with age %s, want a name and a duration", e.Stream, e.MaxAge)
	}
	if !slices.Contains(e.Subjects, "evt.order.created") {
		t.Errorf("subjects: got %q, want evt.order.created among them", e.Subjects)
	}
}

func TestReadEvents(t *testing.T) {
	t.Parallel()
	const imports = `package topology
import ("time"; "github.com/throughline/throughline/pkg/messaging"; "example.test/unknown")
`
	tests := []struct{ name, src, want, err string }{
		{"built from parts", imports + `
const (Events = "E"; EventAge = 2*24*time.Hour; Order = "order"; A = messaging.EventPrefix + Order + ".a"; B = messaging.CommandPrefix + "b")
func f() { unknown.Call(A) }`, "E 48h0m0s evt.order.a", ""},
		{"no stream", imports + `const (EventAge = time.Hour; A = "evt.a")`, "", "is missing"},
		{"no subject", imports + `const (Events = "E"; EventAge = time.Hour)`, "", "is missing"},
		{"from a package without a stub", imports + `const (Events = "E"; EventAge = time.Hour; A = "evt.a"; B = unknown.B)`, "", "B cannot be evaluated"},
		{"no Go", "package", "", "topology.go"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "topology.go")
			if err := os.WriteFile(path, []byte(tt.src), 0o600); err != nil {
				t.Fatal(err)
			}
			e, err := ReadEvents(path)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %+v and error %v, want an error with %q", e, err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := e.Stream + " " + e.MaxAge.String() + " " + strings.Join(e.Subjects, ","); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
