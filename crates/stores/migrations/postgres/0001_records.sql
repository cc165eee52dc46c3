-- What Semel keeps in PostgreSQL, in a schema of its own. PostgreSQL 14 or newer.
--
-- Times are microseconds since 1970 on this server's clock, so that comparing them is exact.
-- `semel.readable` shows them as timestamps.

CREATE FUNCTION semel.now_us() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- One row per key. The address is a keyed hash, so ranges of it are even: four partitions that are each vacuumed
-- and swept by themselves, and that a client which knows the address can name without a search. More of them
-- would cost more than they give: each has plans of its own in every session.
--
-- The primary key is the only index, and no update touches it: updates stay within their page (HOT), for
-- which the pages are left with room.
CREATE TABLE semel.records (
    fence        bigint   NOT NULL,
    created_us   bigint,                     -- none: the row was written once, at written_us
    written_us   bigint   NOT NULL,
    retention_ms bigint   NOT NULL,
    lease_ms     integer  NOT NULL,
    attempt      smallint NOT NULL,          -- these three are unsigned
    max_attempts smallint NOT NULL,
    secret_id    smallint NOT NULL,
    format       smallint NOT NULL,          -- 1; a reader refuses what it doesn't know
    state        smallint NOT NULL,          -- 1 running, 2 completed, 3 failed, 4 in doubt, 5 released
    crash        smallint NOT NULL,          -- 1 takeover, 2 hold
    waited       boolean  NOT NULL DEFAULT false, -- somebody in another process waits for the settlement
    address      uuid     NOT NULL,          -- first half of the identity
    seal         uuid     NOT NULL,          -- second half
    token        uuid     NOT NULL,
    fingerprint  bytea    NOT NULL,
    environment  text     NOT NULL,
    tenant       text     NOT NULL,
    scope        text     NOT NULL,
    hint         text     NOT NULL,          -- how the key begins
    checkpoint   bytea,
    head         bytea,
    body         bytea,
    body_bytes   bigint,                     -- how long a body was that is not kept
    body_day     integer,                    -- in which partition of semel.bodies a large body is
    PRIMARY KEY (address)
) PARTITION BY RANGE (address);

CREATE TABLE semel.records_0 PARTITION OF semel.records
    FOR VALUES FROM (MINVALUE) TO ('40000000-0000-0000-0000-000000000000') WITH (fillfactor = 95);
CREATE TABLE semel.records_1 PARTITION OF semel.records
    FOR VALUES FROM ('40000000-0000-0000-0000-000000000000') TO ('80000000-0000-0000-0000-000000000000')
    WITH (fillfactor = 95);
CREATE TABLE semel.records_2 PARTITION OF semel.records
    FOR VALUES FROM ('80000000-0000-0000-0000-000000000000') TO ('c0000000-0000-0000-0000-000000000000')
    WITH (fillfactor = 95);
CREATE TABLE semel.records_3 PARTITION OF semel.records
    FOR VALUES FROM ('c0000000-0000-0000-0000-000000000000') TO (MAXVALUE) WITH (fillfactor = 95);

-- Large bodies, by the day (since 1970, UTC) on which they expire, so that a whole day is dropped at once.
CREATE TABLE semel.bodies (
    day     integer NOT NULL,
    address uuid    NOT NULL,
    fence   bigint  NOT NULL,
    body    bytea   NOT NULL,
    PRIMARY KEY (day, address, fence)
) PARTITION BY RANGE (day);
ALTER TABLE semel.bodies ALTER COLUMN body SET STORAGE EXTERNAL;

-- Makes the partition for a day unless it is there. Runs as the owner, so that a role that may only read and
-- write can have it made.
CREATE FUNCTION semel.open_day(wanted integer) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    name text := 'bodies_' || to_char(date '1970-01-01' + wanted, 'YYYYMMDD');
BEGIN
    IF to_regclass('semel.' || name) IS NOT NULL THEN RETURN; END IF;
    PERFORM pg_advisory_xact_lock(7306636, wanted);
    IF to_regclass('semel.' || name) IS NOT NULL THEN RETURN; END IF;
    EXECUTE format('CREATE TABLE semel.%I (LIKE semel.bodies INCLUDING ALL)', name);
    -- Attaching does not hold up those who read or write other days.
    EXECUTE format('ALTER TABLE semel.bodies ATTACH PARTITION semel.%I FOR VALUES FROM (%s) TO (%s)',
                   name, wanted, wanted + 1);
END $$;

-- Drops the days before the given one; gives up for now where somebody holds a lock.
CREATE FUNCTION semel.close_days(before integer) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
    AS $$
DECLARE
    name    text;
    dropped integer := 0;
BEGIN
    FOR name IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'semel.bodies'::regclass
          AND c.relname < 'bodies_' || to_char(date '1970-01-01' + before, 'YYYYMMDD')
    LOOP
        EXECUTE format('DROP TABLE semel.%I', name);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

-- What the sweeper moves here where it is told to keep an archive: that a key was used, never its answer.
CREATE TABLE semel.archive (
    address     uuid     NOT NULL,
    environment text     NOT NULL,
    tenant      text     NOT NULL,
    scope       text     NOT NULL,
    hint        text     NOT NULL,
    state       smallint NOT NULL,
    attempt     smallint NOT NULL,
    fence       bigint   NOT NULL,
    created_us  bigint   NOT NULL,
    written_us  bigint   NOT NULL,
    archived_us bigint   NOT NULL
);
CREATE INDEX ON semel.archive USING brin (archived_us);

-- For people.
CREATE VIEW semel.readable AS
SELECT environment, tenant, scope, hint,
       (ARRAY['running', 'completed', 'failed', 'in doubt', 'released'])[state] AS state,
       (ARRAY['takeover', 'hold'])[crash] AS crash, attempt & 65535 AS attempt, max_attempts & 65535 AS max_attempts, fence,
       to_timestamp(coalesce(created_us, written_us) / 1000000.0) AS created_at,
       to_timestamp(written_us / 1000000.0) AS written_at,
       to_timestamp((written_us + lease_ms * 1000::bigint) / 1000000.0) AS lease_end,
       to_timestamp((written_us + retention_ms * 1000) / 1000000.0) AS expires_at,
       coalesce(octet_length(head), 0) + coalesce(octet_length(body), 0) AS answer_bytes,
       address
FROM semel.records;
