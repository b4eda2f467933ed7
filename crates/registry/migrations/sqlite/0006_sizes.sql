-- How long requests and answers were, whether or not they are kept; and what a client calls its request.
ALTER TABLE executions ADD COLUMN request_id TEXT;
ALTER TABLE executions ADD COLUMN request_bytes INTEGER;
ALTER TABLE executions ADD COLUMN response_bytes INTEGER;
