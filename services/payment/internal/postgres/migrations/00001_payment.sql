-- +goose Up

-- One row is the payment of one order, as far as the service has recorded it. The provider's own record is the truth about
-- money; the table step says what was asked for and answered.
CREATE TABLE payment (
    order_id          uuid        NOT NULL,
    status            text        NOT NULL,
    -- The provider's id; empty before it is known.
    payment_intent_id text        NOT NULL DEFAULT '',
    currency          text        NOT NULL DEFAULT '',
    -- Minor units of currency.
    amount            bigint      NOT NULL DEFAULT 0,
    amount_captured   bigint      NOT NULL DEFAULT 0,
    amount_refunded   bigint      NOT NULL DEFAULT 0,
    -- Why the last refused step was refused, as a stable word.
    decline_reason    text        NOT NULL DEFAULT '',
    -- The sequence of the last event about this order, and the id of the last message: what keeps events in sequence.
    event_seq         bigint      NOT NULL DEFAULT 0,
    last_message_id   uuid,
    -- Counts the changes; each compares it with what it has read.
    revision          bigint      NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT payment_pkey PRIMARY KEY (order_id),
    CONSTRAINT payment_status_check CHECK (status IN ('pending', 'authorized', 'captured', 'voided', 'declined')),
    CONSTRAINT payment_amounts_check CHECK (amount >= 0 AND amount_captured >= 0 AND amount_refunded >= 0)
) WITH (fillfactor = 70);
