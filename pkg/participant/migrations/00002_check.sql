-- +goose Up

-- A check looks at the outside after its action is over, where an attempt without an answer may still have an effect.
ALTER TABLE step DROP CONSTRAINT step_kind_check;
ALTER TABLE step ADD CONSTRAINT step_kind_check CHECK (kind IN ('action', 'undo', 'check')) NOT VALID;

-- The token of the call that was under way when somebody said that the step should look again.
ALTER TABLE step ADD COLUMN nudged_token bigint;
