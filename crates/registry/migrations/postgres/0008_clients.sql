-- What the MCP client that made a call calls itself.
ALTER TABLE mcp.executions
    ADD COLUMN client TEXT;
