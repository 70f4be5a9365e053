//go:build unix

package pgtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// helperEnv makes the test binary start a cluster of its own, name its folder, and die by a signal.
const helperEnv = "PGTEST_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		c, err := pgtest.StartCluster(context.Background(), os.Stderr)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(c.DataDir())
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	}
	os.Exit(m.Run())
}

func set(name, sql string) postgres.Migrations {
	file := &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql), Mode: 0o644}
	return postgres.Migrations{Name: name, FS: fstest.MapFS{"00001_first.sql": file}}
}

func exec1(tb testing.TB, pool *pgxpool.Pool, sql string) (got string) {
	tb.Helper()
	if err := pool.QueryRow(context.Background(), sql).Scan(&got); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return got
}

func TestNewIsMigrated(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, set("a", `CREATE TABLE a AS SELECT 'from a' AS v;`), set("b", `CREATE TABLE b AS SELECT v FROM a;`))
	if got := exec1(t, pool, `SELECT v FROM b`); got != "from a" {
		t.Errorf("got %q, want %q", got, "from a")
	}
	if got := exec1(t, pool, `SELECT throughline_require(3, 3, 'x')::text`); got != "3" {
		t.Errorf("base set: got %q, want 3", got)
	}
}

// A changed file must not meet a template of the file before.
func TestNewWithChangedFile(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"one", "two"} {
		pool := pgtest.New(t, set("a", fmt.Sprintf(`CREATE TABLE a AS SELECT '%s' AS v;`, want)))
		if got := exec1(t, pool, `SELECT v FROM a`); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Many tests begin at once with a set that nobody has run yet; what one writes no other sees.
func TestNewIsIsolated(t *testing.T) {
	t.Parallel()
	migrations := set("isolated", `CREATE TABLE x (n int);`)
	var tests sync.WaitGroup
	for range 6 {
		tests.Go(func() {
			pool := pgtest.New(t, migrations)
			if got := exec1(t, pool, `WITH i AS (INSERT INTO x VALUES (1) RETURNING n) SELECT (count(*) + (SELECT count(*) FROM x))::text FROM i`); got != "1" {
				t.Errorf("rows: got %s, want 1", got)
			}
		})
	}
	tests.Wait()
}

func TestDatabaseIsDropped(t *testing.T) {
	t.Parallel()
	observer := pgtest.New(t)
	var name string
	t.Run("inner", func(t *testing.T) {
		pool := pgtest.Open(t, pgtest.URL(t))
		name = exec1(t, pool, `SELECT current_database()`)
		left, err := pool.Acquire(context.Background()) // a session that the test forgot
		if err != nil {
			t.Fatalf("acquiring: %v", err)
		}
		t.Cleanup(left.Release)
	})
	got := exec1(t, observer, fmt.Sprintf(`SELECT count(*)::text FROM pg_database WHERE datname = '%s'`, name))
	if got != "0" {
		t.Errorf("databases called %s: got %s, want 0", name, got)
	}
}

// A test binary that is killed leaves neither a server nor files.
func TestKilledBinaryLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	out, err := cmd.Output()
	dir := strings.TrimSpace(string(out))
	if err == nil || !strings.HasPrefix(dir, os.TempDir()) {
		t.Fatalf("helper: got %q, %v; want a folder and a violent end", dir, err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is still there", dir)
		}
	}
}

// The cluster of a run is used as it is when the environment names one.
func TestRunSharesCluster(t *testing.T) {
	t.Parallel()
	const script = `echo "$` + pgtest.EnvClusterURL + `"; exit 7`
	cmd := exec.Command("go", "run", "./cmd/pgtest-run", "--", "sh", "-c", script)
	cmd.Env = append(os.Environ(), pgtest.EnvClusterURL+"=")
	out, err := cmd.Output()
	if err == nil || !strings.HasPrefix(string(out), "postgres://postgres@127.0.0.1:") {
		t.Errorf("got %q, %v; want a superuser's URL and the command's failure", out, err)
	}
	if exit, ok := err.(*exec.ExitError); ok && !strings.Contains(string(exit.Stderr), "exit status 7") { //nolint:errorlint // as Output returns it
		t.Errorf("status: got %q, want 7", exit.Stderr)
	}
}

func Example() {
	pgtest.Example(func(tb testing.TB, pool *pgxpool.Pool) {
		fmt.Println(exec1(tb, pool, `SELECT v FROM greeting`))
	}, set("greeting", `CREATE TABLE greeting AS SELECT 'hello' AS v;`))
	// Output: hello
}
