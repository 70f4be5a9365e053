//go:build unix

package pgcluster

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// createLock is the advisory lock that serializes CreateDatabase; the number is arbitrary and only has to stay.
const createLock = 0x74686c64

// CreateDatabase makes sure that a role called owner exists with this password, and a database called name that belongs
// to it and that no other role can connect to. It may be called at every start, and by several processes at once.
func (c *Cluster) CreateDatabase(ctx context.Context, name, owner, password string) (err error) {
	conn, err := pgx.Connect(ctx, c.SocketURL("postgres", superuser, c.password))
	if err != nil {
		return fmt.Errorf("creating database %s: %w", name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", createLock); err != nil {
		return fmt.Errorf("creating database %s: waiting for others that do: %w", name, err)
	}
	// Names and passwords cannot be parameters of these statements, so the server quotes them: %1$I is the database,
	// %2$I the role, %3$L the password.
	for _, s := range []struct {
		unless string // a query; no need when it finds a row
		arg    string
		do     string
	}{
		{`SELECT 1 FROM pg_roles WHERE rolname = $1`, owner, `CREATE ROLE %2$I LOGIN`},
		{``, ``, `ALTER ROLE %2$I LOGIN PASSWORD %3$L`},
		{`SELECT 1 FROM pg_database WHERE datname = $1`, name, `CREATE DATABASE %1$I OWNER %2$I`},
		{``, ``, `ALTER DATABASE %1$I OWNER TO %2$I`},
		{``, ``, `REVOKE ALL ON DATABASE %1$I FROM PUBLIC`},
		{``, ``, `REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC`},
	} {
		if s.unless != "" {
			tag, err := conn.Exec(ctx, s.unless, s.arg)
			if err != nil {
				return fmt.Errorf("creating database %s: %w", name, err)
			}
			if tag.RowsAffected() > 0 {
				continue
			}
		}
		var statement string
		if err := conn.QueryRow(ctx, `SELECT format($1, $2::text, $3::text, $4::text)`, s.do, name, owner, password).Scan(&statement); err != nil {
			return fmt.Errorf("creating database %s: %w", name, err)
		}
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("creating database %s for role %s: %w", name, owner, err)
		}
	}
	return nil
}
