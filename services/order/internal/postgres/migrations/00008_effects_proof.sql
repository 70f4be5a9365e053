-- +goose Up

-- How the proofs of effects went that the service makes by itself. One row, written by the instance whose turn it is, and read by all for
-- their metrics.
CREATE TABLE effects_proof (
    only_row      boolean     NOT NULL DEFAULT true,
    created_at    timestamptz NOT NULL DEFAULT now(),
    -- Up to when everything was looked at.
    covered_until timestamptz NOT NULL DEFAULT now(),
    -- When the last run ended, and the last of those that could look at all; NULL before the first.
    ended_at      timestamptz,
    completed_at  timestamptz,
    took_seconds  double precision NOT NULL DEFAULT 0,
    -- The violations that are known: what each run looks at again, and how many there are of each rule.
    violations    jsonb       NOT NULL DEFAULT '[]',
    counts        jsonb       NOT NULL DEFAULT '{}',
    CONSTRAINT effects_proof_pkey PRIMARY KEY (only_row),
    CONSTRAINT effects_proof_only_row_check CHECK (only_row)
);
INSERT INTO effects_proof DEFAULT VALUES;
