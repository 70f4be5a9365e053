-- +goose Up

-- How often the key came with another request, and when it last came with the same and with another one; NULL while it has not. Like
-- replays they are counted on the side.
ALTER TABLE idempotency_record ADD COLUMN mismatches bigint;
ALTER TABLE idempotency_record ADD COLUMN last_replay_at timestamptz;
ALTER TABLE idempotency_record ADD COLUMN last_mismatch_at timestamptz;

-- Which instance has given the first answer: the name that its connections give themselves.
ALTER TABLE idempotency_record ADD COLUMN instance text;
ALTER TABLE idempotency_record ALTER COLUMN instance SET DEFAULT current_setting('application_name');
