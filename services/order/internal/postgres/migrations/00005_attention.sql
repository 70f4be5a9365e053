-- +goose Up

-- The orders that wait for a person: few, so that they can be listed without an index over all orders.
CREATE TABLE attention (
    order_id uuid        NOT NULL,
    -- Why, as a stable word, and in words.
    reason   text        NOT NULL,
    detail   text        NOT NULL,
    since    timestamptz NOT NULL,
    CONSTRAINT attention_pkey PRIMARY KEY (order_id)
);

INSERT INTO attention (order_id, reason, detail, since)
SELECT order_id, '', '', updated_at FROM customer_order WHERE status = 'NEEDS_ATTENTION';

-- What persons have decided. It is written with the decision and never changed.
CREATE TABLE attention_action (
    -- Numbers the decisions in the order in which they were made.
    action_no   bigint GENERATED ALWAYS AS IDENTITY,
    -- The caller's name for the decision: it is made once.
    request_key text        NOT NULL,
    order_id    uuid        NOT NULL,
    -- The step as the caller named it, which a repeat is compared with, and the command that it stands for.
    asked_step  text        NOT NULL,
    step        text        NOT NULL,
    resolution  text        NOT NULL,
    actor       text        NOT NULL,
    reason      text        NOT NULL,
    -- What the saga was at before and after.
    before      jsonb       NOT NULL,
    after       jsonb       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT attention_action_pkey PRIMARY KEY (request_key),
    CONSTRAINT attention_action_resolution_check CHECK (resolution IN ('retry', 'undo_other_way', 'mark_done'))
);

CREATE INDEX attention_action_order_idx ON attention_action (order_id, action_no);
