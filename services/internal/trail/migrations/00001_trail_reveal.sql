-- +goose Up

-- Who was shown an order's personal data, and why. A row is there before the answer is. It is read by order, and there are few.
CREATE TABLE trail_reveal (
    reveal_no  bigint GENERATED ALWAYS AS IDENTITY,
    order_id   uuid        NOT NULL,
    actor      text        NOT NULL,
    reason     text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT trail_reveal_pkey PRIMARY KEY (reveal_no),
    CONSTRAINT trail_reveal_said_check CHECK (actor <> '' AND reason <> '')
);

CREATE INDEX trail_reveal_order_idx ON trail_reveal (order_id);
