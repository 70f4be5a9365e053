-- +goose Up

-- How often the message came again, and when last; NULL while it has not, which takes no room. It decides nothing.
ALTER TABLE inbox ADD COLUMN repeats integer;
ALTER TABLE inbox ADD COLUMN repeated_at timestamptz;

-- Which instance has dealt with the message: the name that its connections give themselves. NULL in rows that are older than this column.
ALTER TABLE inbox ADD COLUMN instance text;
ALTER TABLE inbox ALTER COLUMN instance SET DEFAULT current_setting('application_name');
