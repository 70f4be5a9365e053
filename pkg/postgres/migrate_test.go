package postgres_test

import (
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

func migrations(name string, files map[string]string) postgres.Migrations {
	m := fstest.MapFS{}
	for path, sql := range files {
		m["sql/"+path] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql), Mode: fs.ModePerm}
	}
	return postgres.Migrations{Name: name, FS: m, Dir: "sql"}
}

// The insert would be there twice if two instances had run the file.
func TestMigrateSeveralInstancesAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	a := migrations("a", map[string]string{"00001_x.sql": `CREATE TABLE x (n int);`, "00002_row.sql": `INSERT INTO x VALUES (1);`})
	b := migrations("b", map[string]string{"00001_y.sql": `CREATE TABLE y AS SELECT n FROM x;`})
	var instances sync.WaitGroup
	for range 4 {
		instances.Go(func() {
			if err := postgres.Migrate(t.Context(), pgtest.Open(t, url), a, b, a); err != nil {
				t.Errorf("Migrate: %v", err)
			}
		})
	}
	instances.Wait()
	var x, y int
	row := pgtest.Open(t, url).QueryRow(t.Context(), `SELECT (SELECT count(*) FROM x), (SELECT count(*) FROM y)`)
	if err := row.Scan(&x, &y); err != nil || x != 1 || y != 1 {
		t.Errorf("rows: got %d and %d, %v; want 1 and 1", x, y, err)
	}
}

func TestMigrateContinuesAfterFailure(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	files := map[string]string{"00001_x.sql": `CREATE TABLE x (n int);`, "00002_bad.sql": "INSERT INTO x VALUES (1);\nSELECT 1/0;"}
	err := postgres.Migrate(t.Context(), pool, migrations("a", files))
	if err == nil || !strings.Contains(err.Error(), "migrating a") || !strings.Contains(err.Error(), "00002_bad.sql") {
		t.Fatalf("error: got %v, want one that names the set and the file", err)
	}
	files["00002_bad.sql"] = "INSERT INTO x VALUES (2);"
	if err := postgres.Migrate(t.Context(), pool, migrations("a", files)); err != nil {
		t.Fatalf("Migrate after the repair: %v", err)
	}
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT n FROM x`).Scan(&n); err != nil || n != 2 {
		t.Errorf("row: got %d, %v; want 2", n, err)
	}
}

// During a rolling deployment an instance of the release before starts on a database that is ahead of it.
func TestMigrateLeavesNewerDatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	older := map[string]string{"00001_x.sql": `CREATE TABLE x (n int);`}
	newer := map[string]string{"00001_x.sql": older["00001_x.sql"], "00002_m.sql": `ALTER TABLE x ADD m int;`}
	for _, files := range []map[string]string{newer, older} {
		if err := postgres.Migrate(t.Context(), pool, migrations("a", files)); err != nil {
			t.Fatalf("Migrate with %d files: %v", len(files), err)
		}
	}
	mustExec(t, pool, `INSERT INTO x (n, m) VALUES (1, 2)`)
}

func TestMigrateRefusesBadName(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	for _, name := range []string{"", "A", "a b", `a"; DROP TABLE lease; --`} {
		if err := postgres.Migrate(t.Context(), pool, migrations(name, map[string]string{"00001_x.sql": "SELECT 1;"})); err == nil {
			t.Errorf("name %q: got nil, want an error", name)
		}
	}
}
