-- +goose Up

-- One row says that a consumer has dealt with a message. It is inserted in the transaction that records the effect, or the
-- intent, of the message. Message ids are UUIDv7, so the index grows at the right end of each consumer's part.
CREATE TABLE inbox (
    consumer    text        NOT NULL,
    message_id  uuid        NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT inbox_pkey PRIMARY KEY (consumer, message_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- How often a message failed by its own fault. The broker's count of deliveries does not tell: it also grows while a
-- consumer is away. A row goes with the message's success or dead letter, and expires with the inbox.
CREATE TABLE inbox_failure (
    consumer        text        NOT NULL,
    message_id      uuid        NOT NULL,
    failed          integer     NOT NULL,
    error           text        NOT NULL,
    first_failed_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT inbox_failure_pkey PRIMARY KEY (consumer, message_id)
);

-- A message that a consumer could not deal with. It has no inbox row, so that it can be dealt with later.
CREATE TABLE dead_letter (
    dead_letter_id  bigint GENERATED ALWAYS AS IDENTITY,
    consumer        text        NOT NULL,
    message_id      uuid        NOT NULL,
    aggregate_id    uuid        NOT NULL,
    aggregate_seq   bigint      NOT NULL,
    subject         text        NOT NULL,
    headers         jsonb       NOT NULL,
    payload         bytea       NOT NULL,
    error           text        NOT NULL,
    attempts        bigint      NOT NULL,
    stream_sequence bigint      NOT NULL,
    stored_at       timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT dead_letter_pkey PRIMARY KEY (dead_letter_id),
    CONSTRAINT dead_letter_message_key UNIQUE (consumer, message_id)
);
