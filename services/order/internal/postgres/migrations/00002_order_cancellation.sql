-- +goose Up

-- One row is one cancellation that was accepted. Its primary key, which follows from client and key, is what remembers the key for ever:
-- the stored answer expires, and a key is never reusable.
CREATE TABLE order_cancellation (
    request_id uuid        NOT NULL,
    order_id   uuid        NOT NULL,
    -- The canonical request, which repeats are compared with, field by field.
    request    bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT order_cancellation_pkey PRIMARY KEY (request_id)
);
