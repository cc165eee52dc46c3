-- What consumers of streams keep in PostgreSQL, beside the records in the same schema. PostgreSQL 14 or newer.

-- How far each session came, by consumer. The row is locked while an operation of its session is applied, and moves in
-- the transaction of the effect.
CREATE TABLE semel.stream_sessions (
    consumer text   NOT NULL,
    tenant   uuid   NOT NULL,
    session  uuid   NOT NULL,
    epoch    bigint NOT NULL,                -- the last operation that was applied
    seqno    bigint NOT NULL,
    fence    bigint NOT NULL,                -- epochs below this one are over
    PRIMARY KEY (consumer, tenant, session)
) WITH (fillfactor = 70);

-- Keys of operations that were applied, until they are swept.
CREATE TABLE semel.stream_inbox (
    consumer text        NOT NULL,
    tenant   uuid        NOT NULL,
    key      uuid        NOT NULL,
    applied  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, tenant, key)
);

-- Rows come in the order of their times, so a few bytes for each range of pages tell where the old ones are.
CREATE INDEX stream_inbox_applied ON semel.stream_inbox USING brin (applied) WITH (pages_per_range = 32);
