-- +goose Up

-- One row is one step of one order: what was asked for, how far it is, and what was answered. It is a business record and
-- lives as long as the order. While the step has no outcome, the table is also the queue of the work.
CREATE TABLE step (
    order_id         uuid        NOT NULL,
    step_name        text        NOT NULL,
    kind             text        NOT NULL,
    state            text        NOT NULL,
    -- Set once the undo of this step is committed: the tombstone. From then on the action may not start, and if it was
    -- done, that no longer counts.
    undone_at        timestamptz,
    -- The command; empty in a row that is only a tombstone.
    command_id       uuid,
    command_type     text        NOT NULL DEFAULT '',
    payload          bytea       NOT NULL DEFAULT '',
    idempotency_key  text        NOT NULL DEFAULT '',
    last_seen        uuid,
    traceparent      text        NOT NULL DEFAULT '',
    tracestate       text        NOT NULL DEFAULT '',
    -- When the step may be claimed: the end of its lease while it has an owner, else the time of its next attempt. NULL
    -- when there is nothing left to do.
    due_at           timestamptz,
    lease_owner      text        NOT NULL DEFAULT '',
    -- The fencing token grows with each claim; a result is recorded only under the token it was claimed with.
    token            bigint      NOT NULL DEFAULT 0,
    attempts         integer     NOT NULL DEFAULT 0,
    first_attempt_at timestamptz,
    last_error       text        NOT NULL DEFAULT '',
    -- The outcome, and the reply that was made of it.
    reason           text        NOT NULL DEFAULT '',
    reference        text        NOT NULL DEFAULT '',
    result_type      text        NOT NULL DEFAULT '',
    result           bytea       NOT NULL DEFAULT '',
    reply_id         uuid,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT step_pkey PRIMARY KEY (order_id, step_name),
    CONSTRAINT step_kind_check CHECK (kind IN ('action', 'undo')),
    CONSTRAINT step_state_check CHECK (state IN ('pending', 'waiting', 'done', 'refused'))
) WITH (fillfactor = 70);

-- Only what is not finished is in here, so it stays small however many steps are stored.
CREATE INDEX step_due_idx ON step (due_at) WHERE due_at IS NOT NULL;
