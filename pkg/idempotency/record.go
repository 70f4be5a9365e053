package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/postgres"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations creates the table of this package.
func Migrations() postgres.Migrations {
	return postgres.Migrations{Name: "idempotency", FS: migrations, Dir: "migrations"}
}

// Constraint is the name of the constraint that a repeated insert violates.
const Constraint = "idempotency_record_pkey"

// DefaultLifetime is how long an answer is kept. Clients must stop retrying before; 24 hours is what the large payment
// providers keep theirs.
const DefaultLifetime = 24 * time.Hour

// Record is the answer of one request.
type Record struct {
	// ID follows from client, operation and key.
	ID uuid.UUID
	// Operation is a stable word, for people who look into the table.
	Operation string
	// Fingerprint is that of the canonical request.
	Fingerprint        []byte
	FingerprintVersion int16
	// Request is the canonical request, where nothing else keeps it for the comparison.
	Request []byte
	// Status is the answer's status in the caller's own numbering.
	Status int
	// Header is what went out beside the body, in a form that the caller chooses.
	Header []byte
	// Body is the exact bytes of the answer.
	Body []byte
	// Response is the answer as protobuf, for callers that want the message and not its rendering.
	Response []byte
	// CreatedAt is read only: the database's time of the insert.
	CreatedAt time.Time
	// Lifetime is how long the record is kept, to be set for an insert; 0 means DefaultLifetime.
	Lifetime time.Duration
	// ExpiresAt is read only.
	ExpiresAt time.Time
	// Replays is read only: how often a [ReplayCounter] has counted that the answer was given again.
	Replays int64
	// Mismatches is read only: how often it has counted that the key came with another request.
	Mismatches int64
	// LastReplayAt and LastMismatchAt are read only: about when that was last; nil if never.
	LastReplayAt, LastMismatchAt *time.Time
	// Instance is read only: which instance has given the answer; empty where that is not on record.
	Instance string
}

// Same reports whether a request with this fingerprint is certainly the one that was answered. False decides nothing: the
// caller compares the requests themselves.
func (r *Record) Same(version int16, fingerprint []byte) bool {
	return r.FingerprintVersion == version && bytes.Equal(r.Fingerprint, fingerprint)
}

// Fingerprint hashes the canonical form of a request. The version is part of the hash and counts the changes of that form:
// two releases that write one request differently use two versions.
func Fingerprint(version int16, canonical []byte) []byte {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint16(nil, uint16(version)))
	h.Write(canonical)
	return h.Sum(nil)
}

// A plain insert, without ON CONFLICT: a record that is there already must undo the whole transaction, not only itself.
const insertRecords = `
INSERT INTO idempotency_record (record_id, operation, fingerprint, fingerprint_version, request, status, header, body, response,
                                expires_at)
SELECT record_id, operation, fingerprint, fingerprint_version, request, status, header, body, response, now() + lifetime
  FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::smallint[], $5::bytea[], $6::integer[], $7::bytea[],
              $8::bytea[], $9::bytea[], $10::interval[])
    AS r (record_id, operation, fingerprint, fingerprint_version, request, status, header, body, response, lifetime)
 ORDER BY record_id`

// QueueInsert adds records to a batch that runs as one transaction, together with the effects that they tell of. The transaction
// fails with a violation of [Constraint] if one of them is there already, also if that one has expired and is not removed
// yet. Rows are inserted in the order of their ids, so that two writers never wait for each other in a circle.
func QueueInsert(b *pgx.Batch, records ...Record) {
	n := len(records)
	if n == 0 {
		return
	}
	sorted := slices.Clone(records)
	slices.SortFunc(sorted, func(a, b Record) int { return slices.Compare(a.ID[:], b.ID[:]) })
	ids, operations, prints, versions := make([]uuid.UUID, n), make([]string, n), make([][]byte, n), make([]int16, n)
	statuses, headers, bodies, responses := make([]int32, n), make([][]byte, n), make([][]byte, n), make([][]byte, n)
	requests, lifetimes := make([][]byte, n), make([]time.Duration, n)
	for i, r := range sorted {
		ids[i], operations[i], prints[i], versions[i] = r.ID, r.Operation, orEmpty(r.Fingerprint), r.FingerprintVersion
		statuses[i], headers[i], bodies[i], responses[i] = int32(r.Status), orEmpty(r.Header), orEmpty(r.Body), orEmpty(r.Response)
		requests[i], lifetimes[i] = orEmpty(r.Request), r.Lifetime
		if r.Lifetime <= 0 {
			lifetimes[i] = DefaultLifetime
		}
	}
	b.Queue(insertRecords, ids, operations, prints, versions, requests, statuses, headers, bodies, responses, lifetimes)
}

const deleteForgotten = `DELETE FROM idempotency_record WHERE record_id = ANY ($1::uuid[]) AND expires_at <= now()`

// QueueForget adds the removal of those of the records that have expired and that the reaper has not come to yet. It goes before
// [QueueInsert] where the key may be used anew after its lifetime, that is, where nothing but the record remembers it.
func QueueForget(b *pgx.Batch, ids ...uuid.UUID) { b.Queue(deleteForgotten, ids) }

const selectRecords = `
SELECT record_id, operation, fingerprint, fingerprint_version, request, status, header, body, response, created_at, expires_at,
       replays, coalesce(mismatches, 0), last_replay_at, last_mismatch_at, coalesce(instance, '')
  FROM idempotency_record
 WHERE record_id = ANY ($1::uuid[]) AND expires_at > now()`

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Find reads the records of some requests, those that are there and have not expired.
func Find(ctx context.Context, db Querier, ids ...uuid.UUID) (map[uuid.UUID]Record, error) {
	rows, err := db.Query(ctx, selectRecords, ids)
	if err != nil {
		return nil, fmt.Errorf("reading idempotency records: %w", err)
	}
	found := make(map[uuid.UUID]Record, len(ids))
	if err := collect(rows, found); err != nil {
		return nil, err
	}
	return found, nil
}

// QueueFind adds the reading of records to a batch of reads. They are in found once the batch has run.
func QueueFind(b *pgx.Batch, ids []uuid.UUID, found map[uuid.UUID]Record) {
	b.Queue(selectRecords, ids).Query(func(rows pgx.Rows) error { return collect(rows, found) })
}

func collect(rows pgx.Rows, found map[uuid.UUID]Record) error {
	defer rows.Close()
	for rows.Next() {
		var r Record
		if err := rows.Scan(&r.ID, &r.Operation, &r.Fingerprint, &r.FingerprintVersion, &r.Request, &r.Status, &r.Header, &r.Body, &r.Response,
			&r.CreatedAt, &r.ExpiresAt, &r.Replays, &r.Mismatches, &r.LastReplayAt, &r.LastMismatchAt, &r.Instance); err != nil {
			return fmt.Errorf("scanning an idempotency record: %w", err)
		}
		r.Lifetime = r.ExpiresAt.Sub(r.CreatedAt)
		found[r.ID] = r
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading idempotency records: %w", err)
	}
	return nil
}

// orEmpty stores nothing as no bytes: the columns have no NULL.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
