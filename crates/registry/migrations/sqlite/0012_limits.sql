-- Limits of calls. The name `*` is the default for all of a kind that have no limit of their own; `per_second` is in
-- thousandths.
CREATE TABLE call_limits (
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    per_second INTEGER,
    burst      INTEGER,
    concurrent INTEGER,
    per_day    INTEGER,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT;
-- The calls of the day that count against limits. `day` is a number of days since 1970-01-01, in UTC.
CREATE TABLE limit_counts (
    kind  TEXT NOT NULL,
    name  TEXT NOT NULL,
    day   INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT;
