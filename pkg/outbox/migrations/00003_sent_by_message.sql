-- +goose Up

-- A message is found by its id wherever it is: a backlog leaves in no order of ids, so the range of ids of some pages says
-- nothing, and a filter does. 32 pages hold some 3,000 rows.
DROP INDEX outbox_sent_idx;
CREATE INDEX outbox_sent_idx ON outbox_sent
    USING brin (message_id uuid_bloom_ops (n_distinct_per_range = 3500), stream_sequence int8_minmax_multi_ops, sent_at)
    WITH (pages_per_range = 32, autosummarize = on);
