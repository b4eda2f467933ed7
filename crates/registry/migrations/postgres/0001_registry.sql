-- What must survive a restart. Words (status, transport, ...) are in upper case.
-- Names have the collation "C", so that lists have the same order as in SQLite.
-- Applied migrations are never edited: a change is a new file.

CREATE TABLE mcp.registry_meta (
    key   TEXT PRIMARY KEY,
    value JSONB NOT NULL
);

CREATE TABLE mcp.external_servers (
    id                UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    name              VARCHAR(255) COLLATE "C" NOT NULL UNIQUE,
    description       TEXT,
    transport_type    VARCHAR(32) NOT NULL,
    connection_config JSONB NOT NULL,                          -- sealed, see crates/registry/src/seal.rs
    health_check_url  TEXT,
    deployment_type   VARCHAR(32) NOT NULL DEFAULT 'EXTERNAL',
    origin            VARCHAR(32) NOT NULL DEFAULT 'REGISTERED',
    status            VARCHAR(32) NOT NULL DEFAULT 'DISCONNECTED',
    enabled           BOOLEAN NOT NULL DEFAULT TRUE,
    auto_connect      BOOLEAN NOT NULL DEFAULT TRUE,
    auto_disabled     BOOLEAN NOT NULL DEFAULT FALSE,
    failure_count     BIGINT NOT NULL DEFAULT 0,
    tool_count        BIGINT NOT NULL DEFAULT 0,
    error_message     TEXT,
    server_info       JSON,
    last_health_check TIMESTAMPTZ,
    last_connected_at TIMESTAMPTZ,
    connected_at      TIMESTAMPTZ,
    registered_at     TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at        TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX idx_external_servers_status ON mcp.external_servers (status);

-- TEXT for what servers wrote: JSONB refuses escaped NULs and lone surrogates and reorders keys, and both JSON types
-- refuse deep nesting.
CREATE TABLE mcp.tools (
    id               BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name             TEXT COLLATE "C" NOT NULL,
    original_name    TEXT NOT NULL,
    description      TEXT,
    input_schema     TEXT,
    definition       TEXT NOT NULL,
    source_server_id UUID NOT NULL REFERENCES mcp.external_servers (id) ON DELETE CASCADE,
    is_external      BOOLEAN NOT NULL DEFAULT TRUE,
    is_classified    BOOLEAN NOT NULL DEFAULT FALSE,
    skills           JSONB NOT NULL DEFAULT '[]',
    primary_skill    TEXT,
    position         BIGINT NOT NULL DEFAULT 0,
    text_hash        TEXT NOT NULL,
    embedding        BYTEA,
    embedding_model  TEXT,
    enabled          BOOLEAN NOT NULL DEFAULT TRUE,
    UNIQUE (source_server_id, original_name)
);
CREATE INDEX idx_tools_source_server ON mcp.tools (source_server_id, position);
CREATE INDEX idx_tools_name ON mcp.tools (name);
CREATE INDEX idx_tools_original_name ON mcp.tools (original_name);
-- Counted often, and counting must not read whole definitions.
CREATE INDEX idx_tools_is_classified ON mcp.tools (is_classified);

CREATE TABLE mcp.server_connection_history (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    server_id  UUID NOT NULL REFERENCES mcp.external_servers (id) ON DELETE CASCADE,
    event_type VARCHAR(32) NOT NULL,
    details    JSONB,
    timestamp  TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX idx_server_connection_history_server ON mcp.server_connection_history (server_id, id);
CREATE INDEX idx_server_connection_history_timestamp ON mcp.server_connection_history (timestamp);

CREATE TABLE mcp.settings (
    key        TEXT PRIMARY KEY,
    value      JSONB NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- No reference to a server: what was done stays known when the server is gone.
CREATE TABLE mcp.executions (
    id            UUID PRIMARY KEY,
    server_id     UUID,
    server_name   TEXT NOT NULL,
    tool_name     TEXT NOT NULL,
    source        VARCHAR(32) NOT NULL,
    caller        TEXT,
    document_path TEXT,
    section_line  BIGINT,
    status        VARCHAR(32) NOT NULL,
    submitted_at  TIMESTAMPTZ NOT NULL,
    started_at    TIMESTAMPTZ,
    completed_at  TIMESTAMPTZ,
    duration_us   BIGINT,
    retries       BIGINT NOT NULL DEFAULT 0,
    error_message TEXT,
    arguments     TEXT,
    result        TEXT
);
CREATE INDEX idx_executions_submitted ON mcp.executions (submitted_at, id);
CREATE INDEX idx_executions_server ON mcp.executions (server_id, submitted_at);
CREATE INDEX idx_executions_unfinished ON mcp.executions (submitted_at) WHERE completed_at IS NULL;

CREATE TABLE mcp.section_bindings (
    id                  BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    document            TEXT COLLATE "C" NOT NULL,
    section_type        VARCHAR(32) NOT NULL,
    heading_text        TEXT,
    block_id            TEXT,
    start_line          BIGINT,
    end_line            BIGINT,
    server_id           UUID NOT NULL REFERENCES mcp.external_servers (id) ON DELETE CASCADE,
    inherit_to_children BOOLEAN NOT NULL DEFAULT FALSE,
    created_at          TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at          TIMESTAMPTZ NOT NULL DEFAULT now(),
    CHECK ((section_type = 'HEADING') = (heading_text IS NOT NULL)),
    CHECK ((section_type = 'BLOCK') = (block_id IS NOT NULL)),
    CHECK ((section_type = 'RANGE') = (start_line IS NOT NULL)),
    CHECK ((start_line IS NULL) = (end_line IS NULL)),
    CHECK (section_type IN ('HEADING', 'BLOCK', 'RANGE')),
    CHECK (start_line < end_line)
);
CREATE INDEX idx_section_bindings_document ON mcp.section_bindings (document);
CREATE INDEX idx_section_bindings_server ON mcp.section_bindings (server_id);

CREATE TABLE mcp.audit_log (
    id        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    timestamp TIMESTAMPTZ NOT NULL DEFAULT now(),
    who       TEXT,
    action    TEXT NOT NULL,
    target    TEXT,
    details   JSONB
);
CREATE INDEX idx_audit_log_timestamp ON mcp.audit_log (timestamp);
