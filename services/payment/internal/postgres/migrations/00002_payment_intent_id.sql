-- +goose Up

-- Payments are looked for by the provider's id when people ask what became of one. The ids are random, and a B-tree over them would cost each
-- payment more than that is worth; rows are written close to each other in time, so a filter for each 64 pages finds them.
CREATE INDEX payment_intent_id_idx ON payment USING brin (payment_intent_id text_bloom_ops) WITH (pages_per_range = 64, autosummarize = on);
