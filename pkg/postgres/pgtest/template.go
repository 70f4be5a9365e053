//go:build unix

package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"

	"github.com/throughline/throughline/pkg/postgres"
)

// template returns the name of the database that holds these migrations, and makes it when no process has yet.
func (s *server) template(ctx context.Context, migrations []postgres.Migrations) (string, error) {
	fingerprint, err := fingerprintOf(migrations)
	if err != nil {
		return "", fmt.Errorf("reading migrations: %w", err)
	}
	name := "template_" + fingerprint
	if ok, err := exists(ctx, s.admin, name); err != nil || ok {
		return name, err
	}
	conn, err := s.admin.Acquire(ctx)
	if err != nil {
		return "", fmt.Errorf("preparing template database: %w", err)
	}
	defer conn.Release()
	// Other test binaries may want the same template of a shared cluster at this moment: the first makes it.
	const lock, unlock = `SELECT pg_advisory_lock(hashtextextended($1, 0))`, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`
	if _, err := conn.Exec(ctx, lock, name); err != nil {
		return "", fmt.Errorf("locking template database: %w", err)
	}
	defer func() { _, _ = conn.Exec(context.WithoutCancel(ctx), unlock, name) }() // a lost session has lost its lock too
	if ok, err := exists(ctx, conn, name); err != nil || ok {
		return name, err
	}
	return name, s.makeTemplate(ctx, conn, name, migrations)
}

// makeTemplate migrates a database under another name and then renames it: one that has the name is complete. It works
// on the connection that holds the lock: all others of the pool may be waiting for that.
func (s *server) makeTemplate(ctx context.Context, q querier, name string, migrations []postgres.Migrations) error {
	unfinished := name + "_new"
	if err := execNamed(ctx, q, `DROP DATABASE IF EXISTS %s WITH (FORCE)`, unfinished); err != nil {
		return fmt.Errorf("dropping unfinished template database: %w", err)
	}
	if err := execNamed(ctx, q, `CREATE DATABASE %s`, unfinished); err != nil {
		return fmt.Errorf("creating template database: %w", err)
	}
	pool, err := postgres.Open(ctx, postgres.Config{URL: s.databaseURL(unfinished), MaxConns: 2, AppName: "pgtest"})
	if err != nil {
		return err
	}
	err = postgres.Migrate(ctx, pool, migrations...)
	pool.Close()
	if err != nil {
		return err
	}
	if err := execNamed(ctx, q, `ALTER DATABASE %s RENAME TO %s`, unfinished, name); err != nil {
		return fmt.Errorf("renaming template database: %w", err)
	}
	return nil
}

func exists(ctx context.Context, q querier, name string) (bool, error) {
	var ok bool
	if err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&ok); err != nil {
		return false, fmt.Errorf("looking for template database: %w", err)
	}
	return ok, nil
}

// fingerprintOf hashes names and contents of all files, so that a changed file makes a new template.
func fingerprintOf(migrations []postgres.Migrations) (string, error) {
	h := sha256.New()
	for _, m := range append([]postgres.Migrations{postgres.BaseMigrations()}, migrations...) {
		root, err := m.Root()
		if err != nil {
			return "", err
		}
		add(h, m.Name)
		err = fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := fs.ReadFile(root, path)
			if err != nil {
				return err
			}
			add(h, path)
			add(h, string(content))
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:10]), nil
}

// add hashes a part with its length, so that no two lists of parts look alike.
func add(h hash.Hash, part string) {
	_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // a hash never fails to write
}
