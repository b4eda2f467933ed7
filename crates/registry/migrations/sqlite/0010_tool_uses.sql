-- How often tools were called after searches, by user (the name of a token, or empty) and by word of the search.
CREATE TABLE tool_uses (
    user_name TEXT NOT NULL,
    word      TEXT NOT NULL,
    server_id TEXT NOT NULL REFERENCES external_servers (id) ON DELETE CASCADE,
    tool      TEXT NOT NULL,
    uses      INTEGER NOT NULL,
    used_at   INTEGER NOT NULL,
    PRIMARY KEY (server_id, tool, word, user_name)
) STRICT;
CREATE INDEX idx_tool_uses_used_at ON tool_uses (used_at);
