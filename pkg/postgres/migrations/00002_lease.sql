-- +goose Up
-- One row per name, written by Lease in this package and read by nobody else.
CREATE TABLE lease (
    name  text        NOT NULL,
    owner text        NOT NULL, -- empty: released
    token bigint      NOT NULL, -- fencing token; grows by one at each change of owner
    until timestamptz NOT NULL, -- by the database's clock
    CONSTRAINT lease_pkey PRIMARY KEY (name)
)
-- Renewed about once a second in place: with room on the page these updates stay heap-only.
WITH (fillfactor = 50);
