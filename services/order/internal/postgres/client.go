package postgres

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	// ErrNoClient says that there is no such client, or that it has no such key.
	ErrNoClient = errors.New("no such client or key")

	// ErrKeyTaken says that another key has the prefix, or that the key belongs to another client.
	ErrKeyTaken = errors.New("a key with this prefix exists")
)

// ClientKey is what is kept of an API key.
type ClientKey struct {
	ClientID  string
	Prefix    string
	Hash      []byte // SHA-256
	Scopes    []string
	CreatedAt time.Time
	// RevokedAt is when the key ends; nil for one that does not.
	RevokedAt *time.Time
}

const clientKeyColumns = `client_id, prefix, key_sha256, scopes, created_at, revoked_at`

const selectValidKey = `SELECT ` + clientKeyColumns + ` FROM client_key WHERE prefix = $1 AND (revoked_at IS NULL OR revoked_at > now())`

// FindKey gives the key with a prefix and a hash, if it is valid now. The error wraps [ErrNoClient] if there is none. How long it takes does
// not depend on how much of the hash is right.
func FindKey(ctx context.Context, pool *pgxpool.Pool, prefix string, hash []byte) (ClientKey, error) {
	found, err := queryKeys(ctx, pool, selectValidKey, prefix)
	if err != nil {
		return ClientKey{}, err
	}
	if len(found) != 1 || subtle.ConstantTimeCompare(found[0].Hash, hash) != 1 {
		return ClientKey{}, ErrNoClient
	}
	return found[0], nil
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func queryKeys(ctx context.Context, db querier, sql string, args ...any) ([]ClientKey, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("reading client keys: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ClientKey])
	if err != nil {
		return nil, fmt.Errorf("reading client keys: %w", err)
	}
	return found, nil
}

const (
	insertClient = `INSERT INTO client (client_id) VALUES ($1) ON CONFLICT DO NOTHING`
	insertKey    = `INSERT INTO client_key (client_id, prefix, key_sha256, scopes) VALUES ($1, $2, $3, $4) ON CONFLICT (prefix) DO NOTHING`
	selectKey    = `SELECT ` + clientKeyColumns + ` FROM client_key WHERE prefix = $1`
	// A key that ends sooner anyway keeps its end.
	endOthers = `
UPDATE client_key SET revoked_at = least(coalesce(revoked_at, 'infinity'), now() + $3::interval)
 WHERE client_id = $1 AND prefix <> $2`
)

// AddKey gives a client a key, making the client if need be, and ends its other keys after a time unless othersEnd is nil. A key that the
// client has already is left as it is. The error wraps [ErrKeyTaken] if the prefix is another key's.
func AddKey(ctx context.Context, pool *pgxpool.Pool, k ClientKey, othersEnd *time.Duration) (ClientKey, error) {
	var added ClientKey
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertClient, k.ClientID); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertKey, k.ClientID, k.Prefix, k.Hash, k.Scopes); err != nil {
			return err
		}
		found, err := queryKeys(ctx, tx, selectKey, k.Prefix)
		if err != nil {
			return err
		}
		if len(found) != 1 || found[0].ClientID != k.ClientID || subtle.ConstantTimeCompare(found[0].Hash, k.Hash) != 1 ||
			!slices.Equal(found[0].Scopes, k.Scopes) {
			return ErrKeyTaken
		}
		added = found[0]
		if othersEnd == nil {
			return nil
		}
		_, err = tx.Exec(ctx, endOthers, k.ClientID, k.Prefix, *othersEnd)
		return err
	})
	if err != nil {
		return ClientKey{}, fmt.Errorf("adding a key of %s: %w", k.ClientID, err)
	}
	return added, nil
}

const endKeys = `
UPDATE client_key SET revoked_at = now()
 WHERE client_id = $1 AND (prefix = $2 OR $2 = '') AND (revoked_at IS NULL OR revoked_at > now())`

const selectClientKeys = `SELECT ` + clientKeyColumns + ` FROM client_key WHERE client_id = $1 ORDER BY key_no`

// RevokeKeys ends one key of a client, or with an empty prefix all of them, and gives the client's keys. The error wraps [ErrNoClient] if
// there is no such client or key. Keys that have ended keep their end.
func RevokeKeys(ctx context.Context, pool *pgxpool.Pool, clientID, prefix string) ([]ClientKey, error) {
	if _, err := pool.Exec(ctx, endKeys, clientID, prefix); err != nil {
		return nil, fmt.Errorf("revoking keys of %s: %w", clientID, err)
	}
	found, err := queryKeys(ctx, pool, selectClientKeys, clientID)
	if err != nil {
		return nil, err
	}
	known := func(k ClientKey) bool { return prefix == "" || k.Prefix == prefix }
	if !slices.ContainsFunc(found, known) {
		return nil, fmt.Errorf("revoking keys of %s: %w", clientID, ErrNoClient)
	}
	return found, nil
}

// Client is somebody who may call.
type Client struct {
	ClientID  string
	CreatedAt time.Time
	Keys      []ClientKey // in the order in which they were made
}

const (
	selectClients = `SELECT client_id, created_at FROM client ORDER BY client_id`
	selectAllKeys = `SELECT ` + clientKeyColumns + ` FROM client_key ORDER BY client_id, key_no`
)

// Clients gives all clients with their keys.
func Clients(ctx context.Context, pool *pgxpool.Pool) ([]Client, error) {
	var clients []Client
	var keys []ClientKey
	var b pgx.Batch
	b.Queue(selectClients).Query(func(rows pgx.Rows) (err error) {
		clients, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Client, error) {
			var c Client
			err := row.Scan(&c.ClientID, &c.CreatedAt)
			return c, err
		})
		return err
	})
	b.Queue(selectAllKeys).Query(func(rows pgx.Rows) (err error) {
		keys, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ClientKey])
		return err
	})
	if err := pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("listing clients: %w", err)
	}
	for i := range clients {
		for _, k := range keys {
			if k.ClientID == clients[i].ClientID {
				clients[i].Keys = append(clients[i].Keys, k)
			}
		}
	}
	return clients, nil
}
