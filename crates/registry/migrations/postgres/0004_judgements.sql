-- How certain each of a tool's skills is, in their order.
ALTER TABLE mcp.tools ADD COLUMN confidences JSONB NOT NULL DEFAULT '[]';

-- What a language model said that tools are for, by their text: nobody is asked twice.
CREATE TABLE mcp.judgements (
    server     TEXT COLLATE "C" NOT NULL,
    text_hash  TEXT COLLATE "C" NOT NULL,
    judge      TEXT COLLATE "C" NOT NULL,
    skills     JSONB NOT NULL,
    judged_at  TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (server, text_hash, judge)
);

-- Skills that a language model missed. One that was rejected stays, so that it is not suggested again.
CREATE TABLE mcp.skill_suggestions (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name         TEXT NOT NULL,
    description  TEXT NOT NULL,
    tools        JSONB NOT NULL,
    rejected     BOOLEAN NOT NULL,
    suggested_at TIMESTAMPTZ NOT NULL
);
