-- How long requests and answers were, whether or not they are kept; and what a client calls its request.
ALTER TABLE mcp.executions
    ADD COLUMN request_id TEXT,
    ADD COLUMN request_bytes BIGINT,
    ADD COLUMN response_bytes BIGINT;
