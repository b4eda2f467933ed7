-- How often tools were called after searches, by user (the name of a token, or empty) and by word of the search.
CREATE TABLE mcp.tool_uses (
    user_name TEXT NOT NULL,
    word      TEXT NOT NULL,
    server_id UUID NOT NULL REFERENCES mcp.external_servers (id) ON DELETE CASCADE,
    tool      TEXT NOT NULL,
    uses      BIGINT NOT NULL,
    used_at   TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (server_id, tool, word, user_name)
);
CREATE INDEX idx_tool_uses_used_at ON mcp.tool_uses (used_at);
