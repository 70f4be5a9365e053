-- +goose Up

-- Who has let due work go at once, and why. It is written with the release and never changed.
CREATE TABLE due_release (
    -- The caller's name for the release: it is made once.
    request_key text        NOT NULL,
    actor       text        NOT NULL,
    reason      text        NOT NULL,
    -- What was due at that moment: timers of sagas, and steps by participant.
    sagas       bigint      NOT NULL,
    steps       jsonb       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT due_release_pkey PRIMARY KEY (request_key)
);
