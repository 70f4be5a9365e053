-- +goose Up

-- What the carrier says by itself of the order's shipment, in its own word, and since when by its own clock. A later report takes the
-- place of an earlier one, in whichever order they come. NULL while it has said nothing.
ALTER TABLE shipment ADD COLUMN carrier_status text;
ALTER TABLE shipment ADD COLUMN carrier_status_at timestamptz;
