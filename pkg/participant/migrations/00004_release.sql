-- +goose Up

-- Until when steps that were attempted before are let go at once, instead of at a limited rate. At most one row.
CREATE TABLE step_release (
    only_row boolean     NOT NULL DEFAULT true,
    until    timestamptz NOT NULL,
    CONSTRAINT step_release_pkey PRIMARY KEY (only_row),
    CONSTRAINT step_release_only_row_check CHECK (only_row)
);
