-- +goose Up

-- A dead letter is settled, not deleted, when somebody has dealt with it: what was done stays to be seen. "waiting" is an event
-- that is sound itself and waits behind an earlier one of its aggregate; "followed" is one that was then dealt with.
ALTER TABLE dead_letter
    ADD COLUMN state text NOT NULL DEFAULT 'dead',
    ADD COLUMN settled_at timestamptz,
    ADD CONSTRAINT dead_letter_state_check CHECK (state IN ('dead', 'waiting', 'replayed', 'discarded', 'followed')),
    ADD CONSTRAINT dead_letter_settled_check CHECK ((settled_at IS NULL) = (state IN ('dead', 'waiting')));

-- Open ones are few. Consumers of events look for them with each batch.
CREATE INDEX dead_letter_open_idx ON dead_letter (consumer, aggregate_id, aggregate_seq) WHERE settled_at IS NULL;

-- What a failure holds up: later events of the same aggregate and service.
ALTER TABLE inbox_failure
    ADD COLUMN aggregate_id uuid,
    ADD COLUMN aggregate_seq bigint NOT NULL DEFAULT 0,
    ADD COLUMN subject text NOT NULL DEFAULT '';

-- Who did what about a dead letter, and why. A row is there before anything is done; outcome is empty until it is known.
CREATE TABLE dead_letter_action (
    action_id      bigint GENERATED ALWAYS AS IDENTITY,
    dead_letter_id bigint      NOT NULL,
    action         text        NOT NULL,
    actor          text        NOT NULL,
    reason         text        NOT NULL,
    outcome        text        NOT NULL DEFAULT '',
    detail         text        NOT NULL DEFAULT '',
    created_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT dead_letter_action_pkey PRIMARY KEY (action_id),
    CONSTRAINT dead_letter_action_action_check CHECK (action IN ('replay', 'discard')),
    CONSTRAINT dead_letter_action_actor_check CHECK (actor <> '' AND reason <> '')
);
CREATE INDEX dead_letter_action_letter_idx ON dead_letter_action (dead_letter_id);
