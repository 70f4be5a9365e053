//go:build unix

package pgtest_test

import (
	"testing"

	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

func TestNew(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	var got int64
	if err := pool.QueryRow(t.Context(), `SELECT throughline_require(3, 3, 'x')`).Scan(&got); err != nil || got != 3 {
		t.Fatalf("got %d, %v; want 3", got, err)
	}
}
