package journal_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/throughline/throughline/services/simulator/internal/journal"
)

// open opens path and returns the numbers found in it.
func open(t *testing.T, path string) (*journal.Journal, []int) {
	t.Helper()
	var got []int
	j, err := journal.Open(path, func(line []byte) error {
		var n int
		if err := json.Unmarshal(line, &n); err != nil {
			return err
		}
		got = append(got, n)
		return nil
	})
	if err != nil {
		t.Fatalf("opening %s: %v", path, err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j, got
}

func write(t *testing.T, j *journal.Journal, n int) {
	t.Helper()
	seq, err := j.Append(n)
	if err != nil {
		t.Fatalf("appending %d: %v", n, err)
	}
	if err := j.Wait(seq); err != nil {
		t.Fatalf("waiting for %d: %v", n, err)
	}
}

// A line is in the file once Wait has returned, without Close: that is what
// makes a killed process lose nothing it has answered.
func TestWaitMeansWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "ledger")
	j, _ := open(t, path)
	write(t, j, 1)
	write(t, j, 2)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(content), "1\n2\n"; got != want {
		t.Errorf("file before Close: got %q, want %q", got, want)
	}
}

func TestTornTail(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		content string
		want    []int
	}{
		"whole":               {"1\n2\n", []int{1, 2}},
		"no newline":          {"1\n2", []int{1}},
		"half a line":         {"1\n{\"intent", []int{1}},
		"garbage with end":    {"1\n\x00\x00\x00\n", []int{1}},
		"only half a line":    {"{\"x", nil},
		"empty":               {"", nil},
		"no newline, one num": {"7", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ledger")
			if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			j, got := open(t, path)
			if !slices.Equal(got, test.want) {
				t.Errorf("lines: got %v, want %v", got, test.want)
			}
			write(t, j, 99)
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			if _, got := open(t, path); !slices.Equal(got, append(test.want, 99)) {
				t.Errorf("lines after one more: got %v, want %v", got, append(test.want, 99))
			}
		})
	}
}

func TestCorruptMiddleIsAnError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	if err := os.WriteFile(path, []byte("1\n{oops\n3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := journal.Open(path, func([]byte) error { return nil })
	if !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("error: got %v, want %v", err, journal.ErrCorrupt)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	j, _ := open(t, path)
	if _, err := journal.Open(path, nil); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("second open: got %v, want %v", err, journal.ErrLocked)
	}
	// The lock must also hold after the file has been replaced.
	if err := j.Rewrite([]any{5}); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Open(path, nil); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("second open after rewrite: got %v, want %v", err, journal.ErrLocked)
	}
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	j, _ := open(t, path)
	for n := range 10 {
		write(t, j, n)
	}
	if err := j.Rewrite([]any{100, 200}); err != nil {
		t.Fatal(err)
	}
	write(t, j, 300)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, got := open(t, path); !slices.Equal(got, []int{100, 200, 300}) {
		t.Errorf("lines: got %v, want [100 200 300]", got)
	}
}

func TestConcurrentAppendsAreAllWritten(t *testing.T) {
	t.Parallel()
	const writers, each = 16, 50
	path := filepath.Join(t.TempDir(), "ledger")
	j, _ := open(t, path)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				seq, err := j.Append(w*each + n)
				if err == nil {
					err = j.Wait(seq)
				}
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	_, got := open(t, path)
	slices.Sort(got)
	for n := range writers * each {
		if n >= len(got) || got[n] != n {
			t.Fatalf("line %d is missing or doubled among %d", n, len(got))
		}
	}
}

func TestAppendAfterCloseFails(t *testing.T) {
	t.Parallel()
	j, _ := open(t, filepath.Join(t.TempDir(), "ledger"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(1); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("append after close: got %v, want %v", err, journal.ErrClosed)
	}
	if err := j.Close(); err != nil {
		t.Errorf("second close: got %v, want nil", err)
	}
}
