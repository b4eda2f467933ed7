-- Named views for some clients, as they were written.
CREATE TABLE client_profiles (
    name       TEXT PRIMARY KEY,
    spec       TEXT NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
