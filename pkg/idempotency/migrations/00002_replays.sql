-- +goose Up

-- How often the answer was given again. It is no part of an index, and pages have room, so that counting rewrites a row in place
-- (heap-only) and touches nothing else.
ALTER TABLE idempotency_record ADD COLUMN replays bigint NOT NULL DEFAULT 0;
ALTER TABLE idempotency_record SET (fillfactor = 90);
