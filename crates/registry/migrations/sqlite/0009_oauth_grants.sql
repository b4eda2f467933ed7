-- What signing in to a server gave, encrypted as in crates/registry/src/seal.rs. Writers compare and swap: `version` only
-- grows, also over a removal.
CREATE TABLE oauth_grants (
    key        TEXT PRIMARY KEY,
    server_id  TEXT REFERENCES external_servers (id) ON DELETE CASCADE,
    version    INTEGER NOT NULL,
    value      TEXT NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX idx_oauth_grants_server ON oauth_grants (server_id);
