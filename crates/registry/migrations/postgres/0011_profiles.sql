-- Named views for some clients, as they were written.
CREATE TABLE mcp.client_profiles (
    name       TEXT PRIMARY KEY,
    spec       JSONB NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);
