-- +goose Up

-- One row is one message that is not yet known to be safe at the broker. Rows are written in the transaction of what they
-- tell about, and deleted some time after the broker's acknowledgement. message_id is a UUIDv7, so the primary key grows
-- at its right end, and there is no second index over all rows.
CREATE TABLE outbox (
    message_id      uuid        NOT NULL,
    aggregate_id    uuid        NOT NULL,
    -- Events count from 1 without a gap, per aggregate; commands and replies have 0.
    aggregate_seq   bigint      NOT NULL DEFAULT 0,
    subject         text        NOT NULL,
    type            text        NOT NULL DEFAULT '',
    source          text        NOT NULL DEFAULT '',
    idempotency_key text        NOT NULL DEFAULT '',
    step_name       text        NOT NULL DEFAULT '',
    step_key        uuid,
    outcome         text        NOT NULL DEFAULT '',
    reason          text        NOT NULL DEFAULT '',
    last_seen       uuid,
    traceparent     text        NOT NULL DEFAULT '',
    tracestate      text        NOT NULL DEFAULT '',
    payload         bytea       NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- The writer could not prove that all earlier events of the aggregate are out; only the sweep may publish this row.
    left_to_sweep   boolean     NOT NULL DEFAULT false,
    -- How often the broker refused this row for good, and when it was set aside for that.
    refusals        smallint    NOT NULL DEFAULT 0,
    set_aside_at    timestamptz,
    set_aside_reason text,
    CONSTRAINT outbox_pkey PRIMARY KEY (message_id),
    CONSTRAINT outbox_aggregate_seq_check CHECK (aggregate_seq >= 0),
    CONSTRAINT outbox_subject_check CHECK (subject <> '')
) WITH (
    -- Rows live for about a second; dead ones are cleared early and without pauses.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- What only the sweep may publish is found at once, without waiting for its age.
CREATE INDEX outbox_left_to_sweep_idx ON outbox (message_id) WHERE left_to_sweep;

-- Rows that the broker refuses are few, and are looked for with each insert and at each sweep.
CREATE INDEX outbox_refused_idx ON outbox (aggregate_id, aggregate_seq) WHERE refusals > 0;

-- One row. A process whose connection to the broker is new asks for a full sweep by counting requested up, and hands
-- nothing off from memory until completed has reached its number.
CREATE TABLE outbox_sweep (
    singleton boolean NOT NULL DEFAULT true,
    requested bigint  NOT NULL DEFAULT 0,
    completed bigint  NOT NULL DEFAULT 0,
    CONSTRAINT outbox_sweep_pkey PRIMARY KEY (singleton),
    CONSTRAINT outbox_sweep_singleton_check CHECK (singleton)
);
INSERT INTO outbox_sweep DEFAULT VALUES;
