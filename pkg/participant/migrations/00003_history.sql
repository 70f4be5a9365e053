-- +goose Up

-- What came of each attempt, a line of JSON each, in the order in which they ended. It is text beside what it is about, and no table of its own:
-- it is written by a statement that rewrites the row anyway, and read with it, so that no index has to hold another random order id.
ALTER TABLE step ADD COLUMN history text NOT NULL DEFAULT '';

-- step_history adds lines to a history and bounds it: of a long one the first 4 kB and the last 8 kB of whole lines stay. Lines are numbered by
-- their attempts, so that a reader sees what is left out.
-- +goose StatementBegin
CREATE FUNCTION step_history(history text, lines text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN octet_length(history) < 16384 THEN history
                ELSE regexp_replace(left(history, 4096), '[^\n]*$', '') || regexp_replace(right(history, 8192), '^[^\n]*\n', '') END
           || lines
$$;
-- +goose StatementEnd

-- step_lost is the line of an attempt whose owner has not recorded an end.
-- +goose StatementBegin
CREATE FUNCTION step_lost(attempt integer, token bigint, owner text, began timestamptz) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT json_build_object('n', attempt, 'k', token, 'by', owner, 'at', began, 'r', 'lost')::text || E'\n'
$$;
-- +goose StatementEnd
