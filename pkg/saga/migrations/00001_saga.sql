-- +goose Up

-- One row is one saga. Its state changes by compare-and-set on revision only. No changing column is indexed, and pages
-- have room, so that changes stay heap-only.
CREATE TABLE saga_instance (
    saga_id            uuid        NOT NULL,
    -- Orders the history, whose index would otherwise be as random as saga_id.
    saga_no            bigint GENERATED ALWAYS AS IDENTITY,
    name               text        NOT NULL,
    definition_version integer     NOT NULL,
    definition_hash    bytea       NOT NULL,
    idempotency_key    text        NOT NULL,
    status             text        NOT NULL,
    -- Why a person is needed; empty while none is.
    attention          text        NOT NULL DEFAULT '',
    -- Why the saga turned back, as a stable word.
    reason             text        NOT NULL DEFAULT '',
    state              jsonb       NOT NULL,
    data               bytea       NOT NULL,
    event_seq          bigint      NOT NULL DEFAULT 0,
    last_message_id    uuid,
    revision           bigint      NOT NULL DEFAULT 1,
    traceparent        text        NOT NULL DEFAULT '',
    tracestate         text        NOT NULL DEFAULT '',
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT saga_instance_pkey PRIMARY KEY (saga_id),
    CONSTRAINT saga_instance_status_check CHECK (status IN ('running', 'compensating', 'completed', 'compensated'))
) WITH (fillfactor = 60);

-- When to look at a saga. Rows are hints: they are inserted early, never updated, and fall away when they have fired.
CREATE TABLE saga_timer (
    due_at  timestamptz NOT NULL,
    saga_id uuid        NOT NULL,
    CONSTRAINT saga_timer_pkey PRIMARY KEY (due_at, saga_id)
);

-- The history: each transition of each step, and of the saga as a whole (step is empty then).
CREATE TABLE saga_transition (
    saga_no    bigint      NOT NULL,
    revision   bigint      NOT NULL,
    position   smallint    NOT NULL,
    step       text        NOT NULL,
    from_state text        NOT NULL,
    to_state   text        NOT NULL,
    cause      text        NOT NULL,
    cause_id   uuid,
    attempt    integer     NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT saga_transition_pkey PRIMARY KEY (saga_no, revision, position)
);
