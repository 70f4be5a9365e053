package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sample is how long the rate of a table is watched: above the second in which sessions report what they have written.
const sample = 3 * time.Second

// Table is a table that grows.
type Table struct {
	Name string
	// KeptFor is how long a row stays; 0 means for ever.
	KeptFor time.Duration
}

// Growth is what a table holds, and what it will.
type Growth struct {
	Table
	Rows, Bytes  int64
	RowsPerSec   float64
	ExpectedRows int64
	// ExpectedBytes includes indexes and the room that vacuum leaves.
	ExpectedBytes int64
}

// selectSizes adds up partitions. Rows are what the statistics say.
const selectSizes = `
SELECT t.name, coalesce(sum(s.n_tup_ins), 0)::bigint, coalesce(sum(greatest(s.n_live_tup, 0)), 0)::bigint,
       coalesce(sum(pg_total_relation_size(s.relid)), 0)::bigint
  FROM unnest($1::text[]) AS t (name)
  LEFT JOIN LATERAL (SELECT relid::oid FROM pg_partition_tree(to_regclass(t.name)) UNION SELECT to_regclass(t.name)::oid) p ON true
  LEFT JOIN pg_stat_user_tables s ON s.relid = p.relid
 GROUP BY t.name`

type size struct {
	Name                  string
	Inserted, Rows, Bytes int64
}

func sizes(ctx context.Context, pool *pgxpool.Pool, tables []Table) (map[string]size, error) {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.Name
	}
	rows, err := pool.Query(ctx, selectSizes, names)
	if err != nil {
		return nil, fmt.Errorf("measuring tables: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[size])
	if err != nil {
		return nil, fmt.Errorf("measuring tables: %w", err)
	}
	byName := make(map[string]size, len(list))
	for _, s := range list {
		byName[s.Name] = s
	}
	return byName, nil
}

// grow watches the tables for a few seconds.
func grow(ctx context.Context, pool *pgxpool.Pool, tables []Table) ([]Growth, error) {
	before, err := sizes(ctx, pool, tables)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	timer := time.NewTimer(sample)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, fmt.Errorf("measuring tables: %w", ctx.Err())
	}
	after, err := sizes(ctx, pool, tables)
	if err != nil {
		return nil, err
	}
	return extrapolate(tables, before, after, time.Since(began)), nil
}

func extrapolate(tables []Table, before, after map[string]size, watched time.Duration) []Growth {
	list := make([]Growth, len(tables))
	for i, t := range tables {
		a := after[t.Name]
		g := Growth{Table: t, Rows: a.Rows, Bytes: a.Bytes}
		g.RowsPerSec = float64(max(a.Inserted-before[t.Name].Inserted, 0)) / watched.Seconds()
		g.ExpectedRows = int64(g.RowsPerSec * t.KeptFor.Seconds())
		if a.Rows > 0 {
			g.ExpectedBytes = int64(float64(g.ExpectedRows) * float64(a.Bytes) / float64(a.Rows))
		}
		list[i] = g
	}
	return list
}
