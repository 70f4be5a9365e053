package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var baseMigrations embed.FS

// Migrations is an ordered set of SQL files that one package owns, together with the tables they make. Which of them
// have run is kept in table <Name>_migration. Files are named 00001_what_it_does.sql and use goose's annotations; only
// "-- +goose Up" is ever run. A file that has been released never changes.
type Migrations struct {
	Name string // lower-case letters, digits and underscores; unique in the database
	FS   fs.FS  // usually an embed.FS
	Dir  string // folder of the files in FS; empty means its root
}

// BaseMigrations returns the set of this package: function throughline_require and table lease. [Migrate] always runs
// it first.
func BaseMigrations() Migrations {
	return Migrations{Name: "postgres", FS: baseMigrations, Dir: "migrations"}
}

var migrationsName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,40}$`)

// Root returns the file system whose root holds the set's files.
func (m Migrations) Root() (fs.FS, error) {
	if m.Dir == "" {
		return m.FS, nil
	}
	return fs.Sub(m.FS, m.Dir)
}

// Migrate brings the database up to date: the base set, then each set given, in order, each file in a transaction of its
// own. Sets that are given twice run once. Any number of processes may call it at once: one works and the others wait.
// A file that failed is rolled back and tried again by the next call. It never goes backwards: a database that is ahead
// of the files, because a newer release has run, is left as it is.
func Migrate(ctx context.Context, pool *pgxpool.Pool, sets ...Migrations) (err error) {
	// Connections of its own: a migration may take longer than any statement of a service, but it must not wait long for
	// a lock, because everybody else then waits behind it.
	cc := pool.Config().ConnConfig.Copy()
	cc.RuntimeParams["statement_timeout"] = "0"
	cc.RuntimeParams["idle_in_transaction_session_timeout"] = "0"
	cc.RuntimeParams["lock_timeout"] = milliseconds(0, defaultLockTimeout)
	cc.Tracer = nil
	db := stdlib.OpenDB(*cc)
	defer func() { err = errors.Join(err, db.Close()) }()
	done := make(map[string]bool)
	for _, set := range append([]Migrations{BaseMigrations()}, sets...) {
		if done[set.Name] {
			continue
		}
		done[set.Name] = true
		if err := set.apply(ctx, db); err != nil {
			return fmt.Errorf("migrating %s: %w", set.Name, err)
		}
	}
	return nil
}

func (m Migrations) apply(ctx context.Context, db *sql.DB) error {
	if !migrationsName.MatchString(m.Name) {
		return fmt.Errorf("name %q is not made of lower-case letters, digits and underscores", m.Name)
	}
	root, err := m.Root()
	if err != nil {
		return err
	}
	// Tries once a second: a second instance that starts waits that long at most beyond the first one's end. Five
	// minutes in all, for a migration that rewrites a table.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, root, goose.WithSessionLocker(locker),
		goose.WithTableName(m.Name+"_migration"), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok && partial.Failed != nil {
		return fmt.Errorf("%s: %w", partial.Failed.Source.Path, err)
	}
	return err
}
