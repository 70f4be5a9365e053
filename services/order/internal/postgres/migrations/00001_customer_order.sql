-- +goose Up

-- One row is one order. Its primary key, which follows from client and key, is the arbiter of repeated requests, for ever.
CREATE TABLE customer_order (
    order_id        uuid        NOT NULL,
    -- The sequence in which orders are listed.
    order_no        bigint GENERATED ALWAYS AS IDENTITY,
    client_id       text        NOT NULL,
    idempotency_key text        NOT NULL,
    status          text        NOT NULL,
    currency        text        NOT NULL,
    total           bigint      NOT NULL,
    -- The canonical request, which repeats are compared with, field by field. Kept for ever.
    request         bytea       NOT NULL,
    request_hash    bytea       NOT NULL,
    request_version smallint    NOT NULL,
    failure_reason  text        NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    CONSTRAINT customer_order_pkey PRIMARY KEY (order_id),
    CONSTRAINT customer_order_status_check
        CHECK (status IN ('PENDING', 'CONFIRMED', 'COMPENSATING', 'FAILED', 'CANCELLED', 'NEEDS_ATTENTION')),
    CONSTRAINT customer_order_total_check CHECK (total BETWEEN 1 AND 9007199254740991)
)
-- An order changes its status once or twice; no changing column is indexed, so with room on the page that stays heap-only.
WITH (fillfactor = 70);

-- A client's orders, newest first. It grows at the right end of each client's part.
CREATE INDEX customer_order_client_idx ON customer_order (client_id, order_no);
