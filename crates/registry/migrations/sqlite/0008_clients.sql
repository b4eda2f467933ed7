-- What the MCP client that made a call calls itself.
ALTER TABLE executions ADD COLUMN client TEXT;
