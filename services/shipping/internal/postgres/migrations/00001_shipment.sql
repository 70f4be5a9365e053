-- +goose Up

-- One row is the shipment of one order, as far as the service has recorded it. The carrier's own record is the truth about
-- parcels; the table step says what was asked for and answered.
CREATE TABLE shipment (
    order_id        uuid        NOT NULL,
    status          text        NOT NULL,
    -- The carrier's id; empty before it is known.
    shipment_id     text        NOT NULL DEFAULT '',
    -- Why the last refused step was refused, as a stable word.
    refusal_reason  text        NOT NULL DEFAULT '',
    -- The sequence of the last event about this order, and the id of the last message: what keeps events in sequence.
    event_seq       bigint      NOT NULL DEFAULT 0,
    last_message_id uuid,
    -- Counts the changes; each compares it with what it has read.
    revision        bigint      NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT shipment_pkey PRIMARY KEY (order_id),
    CONSTRAINT shipment_status_check CHECK (status IN ('pending', 'created', 'dispatched', 'cancelled', 'refused'))
) WITH (fillfactor = 70);
