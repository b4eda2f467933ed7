-- When failures disabled a server; and when a connection to it last counted as good, so that it is retried for ever.
ALTER TABLE external_servers ADD COLUMN auto_disabled_at INTEGER;
ALTER TABLE external_servers ADD COLUMN worked_at INTEGER;
UPDATE external_servers SET worked_at = last_connected_at;
UPDATE external_servers SET auto_disabled_at = updated_at WHERE auto_disabled;
