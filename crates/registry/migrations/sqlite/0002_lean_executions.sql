-- Every call adds a row here, so a row must cost little: the table lies in the order in which calls are listed, and has
-- no index that must be kept up to date with every row. What is looked for by other means is found by reading.

CREATE TABLE lean_executions (
    id            TEXT NOT NULL,
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
    result        TEXT,
    PRIMARY KEY (submitted_at, id)
) STRICT, WITHOUT ROWID;
INSERT INTO lean_executions SELECT id, server_id, server_name, tool_name, source, caller, document_path, section_line,
    status, submitted_at, started_at, completed_at, duration_us, retries, error_message, arguments, result
    FROM executions;
DROP TABLE executions;
ALTER TABLE lean_executions RENAME TO executions;
CREATE INDEX idx_executions_unfinished ON executions (submitted_at) WHERE completed_at IS NULL;
