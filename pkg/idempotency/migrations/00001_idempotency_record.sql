-- +goose Up

-- One row is one answered request. It is inserted in the transaction that has the request's effect, and never before: there are
-- no rows of requests that are still running. The primary key is what arbitrates between two requests with one key.
CREATE TABLE idempotency_record (
    record_id           uuid        NOT NULL,
    operation           text        NOT NULL,
    -- Hash of the canonical request, and the version of the form that was hashed.
    fingerprint         bytea       NOT NULL,
    fingerprint_version smallint    NOT NULL,
    -- The canonical request, where nothing else keeps it.
    request             bytea       NOT NULL,
    status              integer     NOT NULL,
    -- The answer as it went out: its headers, the exact bytes of its body, and the same as protobuf.
    header              bytea       NOT NULL,
    body                bytea       NOT NULL,
    response            bytea       NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT now(),
    expires_at          timestamptz NOT NULL,
    CONSTRAINT idempotency_record_pkey PRIMARY KEY (record_id),
    CONSTRAINT idempotency_record_expires_check CHECK (expires_at > created_at)
) WITH (
    -- Rows are inserted, read and deleted, never updated; what the reaper leaves is cleared early and without pauses.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- For the reaper only. Rows with one lifetime expire in the order in which they come, so it grows at its right end.
CREATE INDEX idempotency_record_expires_at_idx ON idempotency_record (expires_at);
