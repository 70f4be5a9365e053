-- +goose Up

-- Who may call.
CREATE TABLE client (
    client_id  text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT client_pkey PRIMARY KEY (client_id),
    CONSTRAINT client_id_check CHECK (client_id ~ '^[a-z0-9_-]{1,64}$')
);

-- With which API keys. Of a key only its hash is kept; the prefix is not secret, and finds it. Rows stay when a key is revoked, so that
-- its prefix still tells whose it was.
CREATE TABLE client_key (
    key_no     bigint GENERATED ALWAYS AS IDENTITY,
    client_id  text        NOT NULL,
    prefix     text        NOT NULL,
    key_sha256 bytea       NOT NULL,
    scopes     text[]      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- From when on the key is refused. It may be in the future, for a key that is being replaced.
    revoked_at timestamptz,
    CONSTRAINT client_key_pkey PRIMARY KEY (key_no),
    CONSTRAINT client_key_client_fkey FOREIGN KEY (client_id) REFERENCES client,
    CONSTRAINT client_key_prefix_key UNIQUE (prefix),
    CONSTRAINT client_key_sha256_check CHECK (octet_length(key_sha256) = 32),
    CONSTRAINT client_key_scopes_check CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['orders:read', 'orders:write'])
);

CREATE INDEX client_key_client_idx ON client_key (client_id);
