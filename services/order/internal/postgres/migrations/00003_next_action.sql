-- +goose Up

-- What the customer has to do before the order can go on, as an encoded throughline.order.v1.NextAction; NULL while nothing is.
ALTER TABLE customer_order ADD COLUMN next_action bytea;
