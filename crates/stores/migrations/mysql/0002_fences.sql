-- No fence of a record that was removed is above this: fences grow even if the server's clock is set back.
CREATE TABLE IF NOT EXISTS semel_fences (
    one   TINYINT NOT NULL PRIMARY KEY,   -- 1
    floor BIGINT  NOT NULL
) ENGINE = InnoDB;

-- What the clock said so far: records may have been removed before there was a floor.
INSERT IGNORE INTO semel_fences
VALUES (1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
