-- What Semel keeps in an SQLite file of its own.
--
-- A record is kept in its packed form (spec/protocol.md), and beside it what must be known without unpacking it.
-- Times are microseconds since 1970 on this host's clock.

CREATE TABLE records (
    address    BLOB    NOT NULL PRIMARY KEY, -- first half of the identity, 16 bytes
    fence      INTEGER NOT NULL,
    expires_us INTEGER NOT NULL,
    record     BLOB    NOT NULL              -- last, so that nothing else has to read past a large one
);

-- For the sweeper. Nearly in the order of writing, so that keeping it up is cheap.
CREATE INDEX records_by_expiry ON records (expires_us);

-- No fence of a record that was removed is above this: fences grow even if the host's clock is set back.
CREATE TABLE fences (
    one   INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    floor INTEGER NOT NULL
);
INSERT INTO fences VALUES (1, 0);
