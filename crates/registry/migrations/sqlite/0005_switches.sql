-- Tools that are switched off, by the names their servers gave them: one that is dropped and listed again stays off.
CREATE TABLE tool_switches (
    source_server_id TEXT NOT NULL REFERENCES external_servers (id) ON DELETE CASCADE,
    original_name    TEXT NOT NULL,
    PRIMARY KEY (source_server_id, original_name)
) STRICT, WITHOUT ROWID;
INSERT INTO tool_switches (source_server_id, original_name)
    SELECT source_server_id, original_name FROM tools WHERE NOT enabled;
