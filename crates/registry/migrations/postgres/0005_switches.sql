-- Tools that are switched off, by the names their servers gave them: one that is dropped and listed again stays off.
CREATE TABLE mcp.tool_switches (
    source_server_id UUID NOT NULL REFERENCES mcp.external_servers (id) ON DELETE CASCADE,
    original_name    TEXT NOT NULL,
    PRIMARY KEY (source_server_id, original_name)
);
INSERT INTO mcp.tool_switches (source_server_id, original_name)
    SELECT source_server_id, original_name FROM mcp.tools WHERE NOT enabled;
