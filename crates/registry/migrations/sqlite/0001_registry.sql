-- What must survive a restart. Words (status, transport, ...) are in upper case, times are microseconds since 1970,
-- ids of servers and executions are UUIDs as text, JSON is text.
-- Applied migrations are never edited: a change is a new file.

CREATE TABLE registry_meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE external_servers (
    id                TEXT PRIMARY KEY,
    name              TEXT NOT NULL UNIQUE,
    description       TEXT,
    transport_type    TEXT NOT NULL,
    connection_config TEXT NOT NULL,                          -- sealed, see crates/registry/src/seal.rs
    health_check_url  TEXT,
    deployment_type   TEXT NOT NULL DEFAULT 'EXTERNAL',
    origin            TEXT NOT NULL DEFAULT 'REGISTERED',
    status            TEXT NOT NULL DEFAULT 'DISCONNECTED',
    enabled           INTEGER NOT NULL DEFAULT TRUE,
    auto_connect      INTEGER NOT NULL DEFAULT TRUE,
    auto_disabled     INTEGER NOT NULL DEFAULT FALSE,
    failure_count     INTEGER NOT NULL DEFAULT 0,
    tool_count        INTEGER NOT NULL DEFAULT 0,
    error_message     TEXT,
    server_info       TEXT,
    last_health_check INTEGER,
    last_connected_at INTEGER,
    connected_at      INTEGER,
    registered_at     INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL
) STRICT;
CREATE INDEX idx_external_servers_status ON external_servers (status);

CREATE TABLE tools (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    name             TEXT NOT NULL,
    original_name    TEXT NOT NULL,
    description      TEXT,
    input_schema     TEXT,
    definition       TEXT NOT NULL,
    source_server_id TEXT NOT NULL REFERENCES external_servers (id) ON DELETE CASCADE,
    is_external      INTEGER NOT NULL DEFAULT TRUE,
    is_classified    INTEGER NOT NULL DEFAULT FALSE,
    skills           TEXT NOT NULL DEFAULT '[]',
    primary_skill    TEXT,
    position         INTEGER NOT NULL DEFAULT 0,
    text_hash        TEXT NOT NULL,
    embedding        BLOB,
    embedding_model  TEXT,
    enabled          INTEGER NOT NULL DEFAULT TRUE,
    UNIQUE (source_server_id, original_name)
) STRICT;
CREATE INDEX idx_tools_source_server ON tools (source_server_id, position);
CREATE INDEX idx_tools_name ON tools (name);
CREATE INDEX idx_tools_original_name ON tools (original_name);
-- Counted often, and counting must not read whole definitions.
CREATE INDEX idx_tools_is_classified ON tools (is_classified);

CREATE TABLE server_connection_history (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    server_id  TEXT NOT NULL REFERENCES external_servers (id) ON DELETE CASCADE,
    event_type TEXT NOT NULL,
    details    TEXT,
    timestamp  INTEGER NOT NULL
) STRICT;
CREATE INDEX idx_server_connection_history_server ON server_connection_history (server_id, id);
CREATE INDEX idx_server_connection_history_timestamp ON server_connection_history (timestamp);

CREATE TABLE settings (
    key        TEXT PRIMARY KEY,
    value      TEXT NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

-- No reference to a server: what was done stays known when the server is gone. Ids are in the order of time, so rows that
-- are ordered by them are appended.
CREATE TABLE executions (
    id            TEXT NOT NULL PRIMARY KEY,
    server_id     TEXT,
    server_name   TEXT NOT NULL,
    tool_name     TEXT NOT NULL,
    source        TEXT NOT NULL,
    caller        TEXT,
    document_path TEXT,
    section_line  INTEGER,
    status        TEXT NOT NULL,
    submitted_at  INTEGER NOT NULL,
    started_at    INTEGER,
    completed_at  INTEGER,
    duration_us   INTEGER,
    retries       INTEGER NOT NULL DEFAULT 0,
    error_message TEXT,
    arguments     TEXT,
    result        TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_executions_submitted ON executions (submitted_at, id);
CREATE INDEX idx_executions_server ON executions (server_id, submitted_at);
CREATE INDEX idx_executions_unfinished ON executions (submitted_at) WHERE completed_at IS NULL;

CREATE TABLE section_bindings (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    document            TEXT NOT NULL,
    section_type        TEXT NOT NULL,
    heading_text        TEXT,
    block_id            TEXT,
    start_line          INTEGER,
    end_line            INTEGER,
    server_id           TEXT NOT NULL REFERENCES external_servers (id) ON DELETE CASCADE,
    inherit_to_children INTEGER NOT NULL DEFAULT FALSE,
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL,
    CHECK ((section_type = 'HEADING') = (heading_text IS NOT NULL)),
    CHECK ((section_type = 'BLOCK') = (block_id IS NOT NULL)),
    CHECK ((section_type = 'RANGE') = (start_line IS NOT NULL)),
    CHECK ((start_line IS NULL) = (end_line IS NULL)),
    CHECK (section_type IN ('HEADING', 'BLOCK', 'RANGE')),
    CHECK (start_line < end_line)
) STRICT;
CREATE INDEX idx_section_bindings_document ON section_bindings (document);
CREATE INDEX idx_section_bindings_server ON section_bindings (server_id);

CREATE TABLE audit_log (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    timestamp INTEGER NOT NULL,
    who       TEXT,
    action    TEXT NOT NULL,
    target    TEXT,
    details   TEXT
) STRICT;
CREATE INDEX idx_audit_log_timestamp ON audit_log (timestamp);
