-- When failures disabled a server; and when a connection to it last counted as good, so that it is retried for ever.
ALTER TABLE mcp.external_servers ADD COLUMN auto_disabled_at TIMESTAMPTZ, ADD COLUMN worked_at TIMESTAMPTZ;
UPDATE mcp.external_servers SET worked_at = last_connected_at;
UPDATE mcp.external_servers SET auto_disabled_at = updated_at WHERE auto_disabled;
