package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/scripts/bench/meter"
)

// Mark is the state of the cluster's counters at one moment.
type Mark struct {
	at         time.Time
	lsn        string
	cpu        time.Duration
	statements int64
	removals   int64
	flushes    int64
}

// Usage is what was done between two marks. What could not be counted on this machine is negative.
type Usage struct {
	Elapsed time.Duration
	// CPU is that of all processes of the server.
	CPU time.Duration
	// WAL is in bytes.
	WAL int64
	// SyncCommits are transactions that waited for the disk. Those that remove rows from an outbox do not wait, and are counted
	// apart; where statements cannot be counted, they are counted with the others.
	SyncCommits, AsyncCommits int64
	// Flushes are how often the log was flushed; several commits may share one.
	Flushes    int64
	Statements int64
}

// The statements of this package have a comment that keeps them out of what they count.
const (
	selectMark = `/* bench */ SELECT pg_current_wal_insert_lsn()::text, (SELECT wal_sync FROM pg_stat_wal)`

	selectStatements = `/* bench */
SELECT coalesce(sum(calls), 0)::bigint, coalesce(sum(calls) FILTER (WHERE ltrim(query, E' \\n\\t') ^@ ANY ($1::text[])), 0)::bigint
  FROM pg_stat_statements
 WHERE query NOT LIKE '/* bench */%'`
)

// CountAsync says which statements end transactions that do not wait for the disk.
func (c *Cluster) CountAsync(statements []string) {
	c.async = make([]string, len(statements))
	for i, sql := range statements {
		// The server keeps a statement as it was written up to its first constant.
		end := strings.IndexFunc(sql, func(r rune) bool { return r == '\'' || unicode.IsDigit(r) })
		if end < 0 {
			end = len(sql)
		}
		c.async[i] = strings.TrimLeftFunc(strings.TrimSuffix(sql[:end], "$"), unicode.IsSpace)
	}
}

// Mark reads the counters.
func (c *Cluster) Mark(ctx context.Context) (Mark, error) {
	m := Mark{at: time.Now(), statements: -1, removals: -1}
	var err error
	if m.cpu, err = meter.Family(c.PID()); err != nil && !errors.Is(err, meter.ErrUnsupported) {
		return m, fmt.Errorf("reading the CPU time of Postgres: %w", err)
	}
	if err := c.admin.QueryRow(ctx, selectMark).Scan(&m.lsn, &m.flushes); err != nil {
		return m, fmt.Errorf("reading the counters of Postgres: %w", err)
	}
	if c.counting {
		if err := c.admin.QueryRow(ctx, selectStatements, c.async).Scan(&m.statements, &m.removals); err != nil {
			return m, fmt.Errorf("counting statements: %w", err)
		}
	}
	return m, nil
}

// Between says what was done between two marks.
func (c *Cluster) Between(ctx context.Context, from, to Mark) (Usage, error) {
	u := Usage{Elapsed: to.at.Sub(from.at), CPU: to.cpu - from.cpu, Flushes: to.flushes - from.flushes, Statements: -1}
	if to.cpu == 0 {
		u.CPU = -1
	}
	if err := c.admin.QueryRow(ctx, `/* bench */ SELECT pg_wal_lsn_diff($1, $2)::bigint`, to.lsn, from.lsn).Scan(&u.WAL); err != nil {
		return u, fmt.Errorf("measuring the log: %w", err)
	}
	commits, err := c.commits(ctx, from.lsn, to.lsn)
	if err != nil {
		return u, err
	}
	u.SyncCommits = commits
	if c.counting {
		u.Statements = to.statements - from.statements
		u.AsyncCommits = min(to.removals-from.removals, commits)
		u.SyncCommits -= u.AsyncCommits
	}
	return u, nil
}

// commits counts the transactions that left a commit in the log. Those that only read leave none.
func (c *Cluster) commits(ctx context.Context, from, to string) (int64, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin.Dir, "pg_waldump"), "--stats=record", "--rmgr=Transaction",
		"--path="+filepath.Join(c.DataDir(), "pg_wal"), "--start="+from, "--end="+to)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("reading the log with pg_waldump: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "Transaction/COMMIT" {
			continue
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading %q of pg_waldump: %w", lines.Text(), err)
		}
		return n, nil
	}
	return 0, lines.Err()
}

// Statement is what one statement has cost since the last Forget.
type Statement struct {
	SQL      string
	Database string
	Calls    int64
	Rows     int64
	// Executed and Planned are in milliseconds; Planned is zero unless the server was told to measure it.
	Executed, Planned float64
}

const selectTop = `/* bench */
SELECT s.query, d.datname, s.calls, s.rows, s.total_exec_time, s.total_plan_time
  FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
 WHERE s.query NOT LIKE '/* bench */%'
 ORDER BY s.total_exec_time + s.total_plan_time DESC
 LIMIT $1`

// Top gives the statements that have cost most.
func (c *Cluster) Top(ctx context.Context, n int) ([]Statement, error) {
	if !c.counting {
		return nil, nil
	}
	rows, err := c.admin.Query(ctx, selectTop, n)
	if err != nil {
		return nil, fmt.Errorf("reading the costs of statements: %w", err)
	}
	top, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Statement])
	if err != nil {
		return nil, fmt.Errorf("reading the costs of statements: %w", err)
	}
	return top, nil
}

// Forget sets the costs of statements to zero.
func (c *Cluster) Forget(ctx context.Context) error {
	if !c.counting {
		return nil
	}
	return c.Exec(ctx, "/* bench */ SELECT pg_stat_statements_reset()")
}

// Settle writes everything out, so that measurements begin alike.
func (c *Cluster) Settle(ctx context.Context) error { return c.Exec(ctx, "CHECKPOINT") }
