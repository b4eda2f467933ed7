-- What a tool's skills were told by (a model and a set of skills): told otherwise today, they are told anew.
ALTER TABLE tools ADD COLUMN classified_by TEXT;

-- Skills that are not as they come: changed, switched off, or new.
CREATE TABLE skills (
    id          TEXT NOT NULL PRIMARY KEY,
    name        TEXT NOT NULL,
    description TEXT NOT NULL,
    examples    TEXT NOT NULL,
    enabled     INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
