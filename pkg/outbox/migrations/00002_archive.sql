-- +goose Up

-- What was ever written, once and for all: rows are only inserted, and dropped by the day after the retention. The table
-- outbox beside it keeps, per message, only what the relay needs while the message is pending; outbox_sent what became of it.
CREATE TABLE outbox_message (
    message_id      uuid        NOT NULL,
    aggregate_id    uuid        NOT NULL,
    aggregate_seq   bigint      NOT NULL DEFAULT 0,
    subject         text        NOT NULL,
    type            text        NOT NULL DEFAULT '',
    source          text        NOT NULL DEFAULT '',
    idempotency_key text        NOT NULL DEFAULT '',
    step_name       text        NOT NULL DEFAULT '',
    step_key        uuid,
    outcome         text        NOT NULL DEFAULT '',
    reason          text        NOT NULL DEFAULT '',
    last_seen       uuid,
    traceparent     text        NOT NULL DEFAULT '',
    tracestate      text        NOT NULL DEFAULT '',
    payload         bytea       NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT outbox_message_subject_check CHECK (subject <> '')
) PARTITION BY RANGE (created_at);

-- Message ids grow, so this index grows at its right end.
CREATE INDEX outbox_message_id_idx ON outbox_message (message_id);

-- Order ids are random: a B-tree over them would cost more than everything else here. The rows of one order are written
-- close to each other, so a filter for each 32 pages finds them.
CREATE INDEX outbox_message_aggregate_idx ON outbox_message
    USING brin (aggregate_id uuid_bloom_ops, created_at) WITH (pages_per_range = 32, autosummarize = on);

-- What was acknowledged by which stream under which sequence number. A row is inserted when its message leaves the outbox.
CREATE TABLE outbox_sent (
    message_id      uuid        NOT NULL,
    stream          text        NOT NULL,
    stream_sequence bigint      NOT NULL,
    sent_at         timestamptz NOT NULL
) PARTITION BY RANGE (sent_at);

-- All of it grows with time, so summaries of page ranges find a message, a time and a gap in a stream.
CREATE INDEX outbox_sent_idx ON outbox_sent
    USING brin (message_id, stream_sequence int8_minmax_multi_ops, sent_at) WITH (pages_per_range = 32, autosummarize = on);

-- They take what no partition was made for in time, so that a write never fails for that. They are empty otherwise.
CREATE TABLE outbox_message_default PARTITION OF outbox_message DEFAULT;
CREATE TABLE outbox_sent_default PARTITION OF outbox_sent DEFAULT;

-- Makes the partitions of the days from today on. Attaching, unlike creating in place, lets writers go on. A day for which
-- the default partition has rows already stays there.
-- +goose StatementBegin
CREATE FUNCTION outbox_add_partitions(days integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    made integer := 0;
    parent text;
    name text;
    day date;
BEGIN
    FOREACH parent IN ARRAY ARRAY['outbox_message', 'outbox_sent'] LOOP
        FOR i IN 0..days - 1 LOOP
            day := (now() AT TIME ZONE 'UTC')::date + i;
            name := parent || to_char(day, '_YYYYMMDD');
            CONTINUE WHEN to_regclass(name) IS NOT NULL;
            BEGIN
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name, parent);
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                    parent, name, to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00', to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
                made := made + 1;
            EXCEPTION WHEN check_violation THEN
                NULL; -- this day's rows are in the default partition
            END;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;
-- +goose StatementEnd

-- Drops the partitions of days that had ended at the given time, except those with a message that is still pending. What is
-- in the default partitions is deleted.
-- +goose StatementBegin
CREATE FUNCTION outbox_drop_partitions(before timestamptz) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    dropped integer := 0;
    pending timestamptz;
    parent text;
    name text;
    ends timestamptz;
BEGIN
    SELECT least(min(created_at), before) INTO pending FROM outbox;
    before := coalesce(pending, before);
    FOREACH parent IN ARRAY ARRAY['outbox_message', 'outbox_sent'] LOOP
        FOR name IN SELECT c.relname FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid
                     WHERE h.inhparent = parent::regclass AND c.relname ~ '_[0-9]{8}$' ORDER BY c.relname LOOP
            ends := (to_date(right(name, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC';
            CONTINUE WHEN ends > before;
            EXECUTE format('DROP TABLE %I', name);
            dropped := dropped + 1;
        END LOOP;
    END LOOP;
    DELETE FROM outbox_message_default WHERE created_at < before;
    DELETE FROM outbox_sent_default WHERE sent_at < before;
    RETURN dropped;
END
$$;
-- +goose StatementEnd

SELECT outbox_add_partitions(3);

INSERT INTO outbox_message (message_id, aggregate_id, aggregate_seq, subject, type, source, idempotency_key, step_name, step_key,
                            outcome, reason, last_seen, traceparent, tracestate, payload, created_at)
SELECT message_id, aggregate_id, aggregate_seq, subject, type, source, idempotency_key, step_name, step_key,
       outcome, reason, last_seen, traceparent, tracestate, payload, created_at
  FROM outbox;

ALTER TABLE outbox
    DROP COLUMN subject, DROP COLUMN type, DROP COLUMN source, DROP COLUMN idempotency_key, DROP COLUMN step_name,
    DROP COLUMN step_key, DROP COLUMN outcome, DROP COLUMN reason, DROP COLUMN last_seen, DROP COLUMN traceparent,
    DROP COLUMN tracestate, DROP COLUMN payload;

-- What is pending, with all that is known about it, for people.
CREATE VIEW outbox_pending AS
SELECT m.*, o.left_to_sweep, o.refusals, o.set_aside_at, o.set_aside_reason
  FROM outbox o JOIN outbox_message m ON m.message_id = o.message_id AND m.created_at = o.created_at;

-- Who published what again, and why.
CREATE TABLE outbox_republish (
    republish_id bigint GENERATED ALWAYS AS IDENTITY,
    message_id   uuid        NOT NULL,
    actor        text        NOT NULL,
    reason       text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT outbox_republish_pkey PRIMARY KEY (republish_id)
);
