-- Limits of calls. The name `*` is the default for all of a kind that have no limit of their own; `per_second` is in
-- thousandths.
CREATE TABLE mcp.call_limits (
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    per_second BIGINT,
    burst      BIGINT,
    concurrent BIGINT,
    per_day    BIGINT,
    updated_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (kind, name)
);
-- The calls of the day that count against limits. `day` is a number of days since 1970-01-01, in UTC.
CREATE TABLE mcp.limit_counts (
    kind  TEXT NOT NULL,
    name  TEXT NOT NULL,
    day   BIGINT NOT NULL,
    calls BIGINT NOT NULL,
    PRIMARY KEY (kind, name)
);
