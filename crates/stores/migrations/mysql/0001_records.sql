-- What Semel keeps in MariaDB or MySQL, in tables whose names begin with `semel_`. MariaDB 10.6, MySQL 8.0 or newer.
--
-- Times are microseconds since 1970 on this server's clock, so that comparing them is exact. `semel_readable` shows
-- them as timestamps. Text is kept as bytes, so that no collation finds two names alike that are not.

-- One row per key. The primary key is the only index: an update touches no other.
CREATE TABLE IF NOT EXISTS semel_records (
    address      BINARY(16)     NOT NULL,   -- first half of the identity
    seal         BINARY(16)     NOT NULL,   -- second half
    token        BINARY(16)     NOT NULL,
    fence        BIGINT         NOT NULL,
    created_us   BIGINT         NOT NULL,
    written_us   BIGINT         NOT NULL,
    retention_ms BIGINT         NOT NULL,
    lease_ms     INT            NOT NULL,
    attempt      INT            NOT NULL,
    max_attempts INT            NOT NULL,
    secret_id    INT            NOT NULL,
    format       SMALLINT       NOT NULL,   -- 1; a reader refuses what it doesn't know
    state        TINYINT        NOT NULL,   -- 1 running, 2 completed, 3 failed, 4 in doubt, 5 released
    crash        TINYINT        NOT NULL,   -- 1 takeover, 2 hold
    fingerprint  VARBINARY(32)  NOT NULL,
    environment  VARBINARY(128) NOT NULL,
    tenant       VARBINARY(128) NOT NULL,
    scope        VARBINARY(128) NOT NULL,
    hint         VARBINARY(64)  NOT NULL,   -- how the key begins
    body_bytes   BIGINT,                    -- how long a body was that is not kept
    checkpoint   MEDIUMBLOB,
    head         MEDIUMBLOB,
    body         LONGBLOB,
    PRIMARY KEY (address)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What the sweeper moves here where it is told to keep an archive: that a key was used, never its answer.
CREATE TABLE IF NOT EXISTS semel_archive (
    id          BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    address     BINARY(16)     NOT NULL,
    environment VARBINARY(128) NOT NULL,
    tenant      VARBINARY(128) NOT NULL,
    scope       VARBINARY(128) NOT NULL,
    hint        VARBINARY(64)  NOT NULL,
    state       TINYINT        NOT NULL,
    attempt     INT            NOT NULL,
    fence       BIGINT         NOT NULL,
    created_us  BIGINT         NOT NULL,
    written_us  BIGINT         NOT NULL,
    archived_us BIGINT         NOT NULL
) ENGINE = InnoDB;

-- For people.
CREATE OR REPLACE VIEW semel_readable AS
SELECT CONVERT(environment USING utf8mb4) AS environment, CONVERT(tenant USING utf8mb4) AS tenant,
       CONVERT(scope USING utf8mb4) AS scope, CONVERT(hint USING utf8mb4) AS hint,
       ELT(state, 'running', 'completed', 'failed', 'in doubt', 'released') AS state,
       ELT(crash, 'takeover', 'hold') AS crash, attempt, max_attempts, fence,
       TIMESTAMPADD(MICROSECOND, created_us, '1970-01-01') AS created_at,
       TIMESTAMPADD(MICROSECOND, written_us, '1970-01-01') AS written_at,
       TIMESTAMPADD(MICROSECOND, written_us + lease_ms * 1000, '1970-01-01') AS lease_end,
       TIMESTAMPADD(MICROSECOND, written_us + retention_ms * 1000, '1970-01-01') AS expires_at,
       COALESCE(OCTET_LENGTH(head), 0) + COALESCE(OCTET_LENGTH(body), 0) AS answer_bytes,
       HEX(address) AS address
FROM semel_records;
