-- +goose Up

-- How often in a row a timer was put off, because its saga could not be dealt with.
ALTER TABLE saga_timer ADD COLUMN failures integer NOT NULL DEFAULT 0;

-- Sagas that need a person are few, and may have no timer that leads to them. Other changes of a saga stay heap-only: they do not touch
-- what this index is about.
CREATE INDEX saga_instance_attention_idx ON saga_instance (name) WHERE attention <> '';

-- Until when due work is let go at once, instead of at a limited rate. At most one row.
CREATE TABLE saga_release (
    only_row boolean     NOT NULL DEFAULT true,
    until    timestamptz NOT NULL,
    CONSTRAINT saga_release_pkey PRIMARY KEY (only_row),
    CONSTRAINT saga_release_only_row_check CHECK (only_row)
);
