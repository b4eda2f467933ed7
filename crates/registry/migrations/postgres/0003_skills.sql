-- What a tool's skills were told by (a model and a set of skills): told otherwise today, they are told anew.
ALTER TABLE mcp.tools ADD COLUMN classified_by TEXT;

-- Skills that are not as they come: changed, switched off, or new.
CREATE TABLE mcp.skills (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name        TEXT NOT NULL,
    description TEXT NOT NULL,
    examples    JSONB NOT NULL,
    enabled     BOOLEAN NOT NULL,
    updated_at  TIMESTAMPTZ NOT NULL
);
