-- What signing in to a server gave, encrypted as in crates/registry/src/seal.rs. Writers compare and swap: `version` only
-- grows, also over a removal.
CREATE TABLE mcp.oauth_grants (
    key        TEXT PRIMARY KEY,
    server_id  UUID REFERENCES mcp.external_servers (id) ON DELETE CASCADE,
    version    BIGINT NOT NULL,
    value      JSONB NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX idx_oauth_grants_server ON mcp.oauth_grants (server_id);
