-- How certain each of a tool's skills is, in their order.
ALTER TABLE tools ADD COLUMN confidences TEXT NOT NULL DEFAULT '[]';

-- What a language model said that tools are for, by their text: nobody is asked twice.
CREATE TABLE judgements (
    server     TEXT NOT NULL,
    text_hash  TEXT NOT NULL,
    judge      TEXT NOT NULL,
    skills     TEXT NOT NULL,
    judged_at  INTEGER NOT NULL,
    PRIMARY KEY (server, text_hash, judge)
) STRICT, WITHOUT ROWID;

-- Skills that a language model missed. One that was rejected stays, so that it is not suggested again.
CREATE TABLE skill_suggestions (
    id           TEXT NOT NULL PRIMARY KEY,
    name         TEXT NOT NULL,
    description  TEXT NOT NULL,
    tools        TEXT NOT NULL,
    rejected     INTEGER NOT NULL,
    suggested_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
