// Package cluster keeps the bench's own Postgres cluster, and counts what is done in it.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres/pgcluster"
	"github.com/throughline/throughline/scripts/bench/meter"
)

// Services are those that have a database.
func Services() []string { return []string{"order", "payment", "shipping"} }

// password is that of every role. The cluster listens on loopback, and holds nothing of value.
const password = "bench"

// statementsLibrary counts statements. It is one of the server's contributed modules, which some systems package apart.
const statementsLibrary = "pg_stat_statements"

// Cluster is a running cluster.
type Cluster struct {
	*pgcluster.Cluster
	bin pgcluster.Binaries
	// counting tells whether statements are counted.
	counting bool
	// async are the beginnings of statements whose transactions do not wait for the disk.
	async []string
	admin *pgxpool.Pool
}

// Config says how to start a cluster.
type Config struct {
	Dir string
	// Loading trades safety for speed, while rows are loaded.
	Loading bool
	// Settings override the server's settings, for trials.
	Settings map[string]string
	Progress io.Writer
}

// settings are those of the measurements. A commit waits for the disk. Memory and the distance of checkpoints are what a server gets that
// is meant for this work, which the defaults are not: a quarter of the machine's memory, and checkpoints by time, and so none while something is measured.
func (cfg *Config) settings(counting bool) map[string]string {
	s := map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
		"shared_buffers": fmt.Sprintf("%dMB", SharedBuffers()>>20), "max_connections": "500", "max_wal_size": "24GB", "checkpoint_timeout": "1h",
		// When a transaction committed is what the lag of its messages is measured from.
		"track_commit_timestamp": "on",
		// The log of a measurement must still be there when it has ended: its commits are counted in it.
		"wal_keep_size": "2GB",
	}
	if counting {
		s["shared_preload_libraries"] = statementsLibrary
	}
	if cfg.Loading {
		s["fsync"], s["full_page_writes"], s["autovacuum"] = "off", "off", "off"
		s["wal_level"], s["max_wal_senders"], s["max_wal_size"], s["wal_keep_size"] = "minimal", "0", "16GB", "0"
		s["maintenance_work_mem"] = "1GB"
	}
	maps.Copy(s, cfg.Settings)
	return s
}

// SharedBuffers is a quarter of the machine's memory, and 4 GiB at most, in bytes.
func SharedBuffers() int64 { return min(meter.Memory()/4, 4<<30) }

// SharedMemory is what a server takes of shared memory in all, in bytes: besides the buffers what it keeps about each of them, the buffers of
// its log, and its connections.
func SharedMemory() int64 { return SharedBuffers() + SharedBuffers()/32 + 128<<20 }

// Start starts the cluster in a folder, and makes it if there is none.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	bin, err := pgcluster.Find(ctx, "")
	if errors.Is(err, pgcluster.ErrNotFound) {
		bin, err = pgcluster.Install(ctx, cfg.Progress)
	}
	if err != nil {
		return nil, err
	}
	c := &Cluster{bin: bin, counting: hasLibrary(ctx, bin)}
	c.Cluster, err = pgcluster.Start(ctx, pgcluster.Config{
		Dir: cfg.Dir, BinDir: bin.Dir, Trust: true, Settings: cfg.settings(c.counting), Progress: cfg.Progress,
	})
	if err != nil {
		return nil, err
	}
	if c.admin, err = pgxpool.New(ctx, c.SuperuserURL("postgres")); err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	if c.counting {
		if err := c.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS "+statementsLibrary); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// hasLibrary tells whether the server can load the library that counts statements.
func hasLibrary(ctx context.Context, bin pgcluster.Binaries) bool {
	dirs := []string{filepath.Join(bin.Dir, "..", "lib"), filepath.Join(bin.Dir, "..", "lib", "postgresql")}
	for _, program := range []string{filepath.Join(bin.Dir, "pg_config"), "pg_config"} {
		if out, err := exec.CommandContext(ctx, program, "--pkglibdir").Output(); err == nil {
			dirs = append(dirs, strings.TrimSpace(string(out)))
		}
	}
	for _, dir := range dirs {
		for _, suffix := range []string{".so", ".dylib"} {
			if _, err := os.Stat(filepath.Join(dir, statementsLibrary+suffix)); err == nil {
				return true
			}
		}
	}
	return false
}

// Stop stops the cluster.
func (c *Cluster) Stop(ctx context.Context) error {
	c.admin.Close()
	return c.Cluster.Stop(ctx)
}

// Exec runs a statement as the cluster's owner.
func (c *Cluster) Exec(ctx context.Context, sql string, args ...any) error {
	if _, err := c.admin.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("running %q: %w", sql, err)
	}
	return nil
}

// name is what the database of a service is called in a set.
func name(set, service string) string { return set + "_" + service }

// Create makes the databases of a set, empty.
func (c *Cluster) Create(ctx context.Context, set string) error {
	for _, service := range Services() {
		if err := c.CreateDatabase(ctx, name(set, service), service, password); err != nil {
			return err
		}
	}
	return nil
}

// Copy makes the databases of a set as copies of those of another, to which nobody may be connected.
func (c *Cluster) Copy(ctx context.Context, from, to string) error {
	for _, service := range Services() {
		sql := fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s OWNER %s",
			pgx.Identifier{name(to, service)}.Sanitize(), pgx.Identifier{name(from, service)}.Sanitize(), pgx.Identifier{service}.Sanitize())
		if err := c.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// Drop removes the databases of a set, if they are there.
func (c *Cluster) Drop(ctx context.Context, set string) error {
	for _, service := range Services() {
		if err := c.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name(set, service)}.Sanitize()+" WITH (FORCE)"); err != nil {
			return err
		}
	}
	return nil
}

// ServiceURL is where a service finds its database of a set.
func (c *Cluster) ServiceURL(set, service string) string {
	return c.SocketURL(name(set, service), service, password)
}

// OwnerURL is the same database for the cluster's owner.
func (c *Cluster) OwnerURL(set, service string) string { return c.SuperuserURL(name(set, service)) }
