-- The queue of jobs, beside the records, so that a job and the record of its key are written by one statement.
--
-- Times are microseconds since 1970 on this server's clock.

CREATE TABLE semel.jobs (
    id           uuid     NOT NULL PRIMARY KEY, -- begins with a time, so that new ones come last
    request_id   uuid     NOT NULL,
    lane         uuid     NOT NULL,             -- a digest of environment, tenant and kind
    state        smallint NOT NULL,             -- 1 queued, 2 running, 3 done, 4 dead
    priority     smallint NOT NULL,             -- 0 to 9, higher first
    attempt      smallint NOT NULL,             -- how often it was started
    max_attempts smallint NOT NULL,
    secret_id    smallint NOT NULL,             -- unsigned
    due_us       bigint   NOT NULL,             -- queued: not before; running: until; ended: since
    created_us   bigint   NOT NULL,
    started_us   bigint,
    lease        uuid,                          -- of the worker that has it, or had it last
    worker       text,                          -- none: the last one gave it back
    environment  text     NOT NULL,
    tenant       text     NOT NULL,
    kind         text     NOT NULL,
    scope        text     NOT NULL,             -- where the key lives: the kind, unless the submitter said otherwise
    client       text     NOT NULL,
    hint         text     NOT NULL,             -- how the key begins
    params       bytea    NOT NULL,             -- JSON, as it came
    address      uuid,                          -- which record; none: submitted without a key
    seal         uuid,
    fence        bigint,
    token        uuid,
    fingerprint  bytea,
    retention_ms bigint   NOT NULL,
    result       bytea,                         -- JSON, as it came
    result_bytes bigint,                        -- how long one was that is not kept
    error        text
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- What waits, as workers take it.
CREATE INDEX jobs_queued ON semel.jobs (lane, priority, due_us) WHERE state = 1;
-- What runs, as its leases end.
CREATE INDEX jobs_running ON semel.jobs (due_us) INCLUDE (lane) WHERE state = 2;
-- One unfinished job for a key, even where the record has expired before the job was done.
CREATE UNIQUE INDEX jobs_unfinished ON semel.jobs (address) WHERE state < 3;

-- For people.
CREATE VIEW semel.readable_jobs AS
SELECT 'job_' || replace(id::text, '-', '') AS job_id, environment, tenant, kind, client, hint,
       (ARRAY['queued', 'running', 'done', 'dead'])[state] AS state, priority, attempt, max_attempts, worker,
       to_timestamp(created_us / 1000000.0) AS created_at, to_timestamp(started_us / 1000000.0) AS started_at,
       to_timestamp(due_us / 1000000.0) AS due_at, octet_length(params) AS params_bytes,
       coalesce(result_bytes, octet_length(result)) AS result_bytes, error
FROM semel.jobs;
