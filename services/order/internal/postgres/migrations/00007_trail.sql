-- +goose Up

-- Cancellations are few, and are looked for by people who ask what became of an order.
CREATE INDEX order_cancellation_order_idx ON order_cancellation (order_id);
