-- The largest fence of all records that were removed. A first run's fence is larger, so that fences of a key grow also
-- where its record is gone and this server's clock was set back. Raised by whoever removes records, read by claims.
CREATE TABLE semel.fence_floor (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- one row
    floor  bigint  NOT NULL
);
INSERT INTO semel.fence_floor (floor) VALUES (0);

-- Whoever may read and change records may do the same here.
DO $$
DECLARE
    allowed record;
BEGIN
    FOR allowed IN
        SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END AS role, privilege_type
        FROM pg_class, aclexplode(relacl)
        WHERE pg_class.oid = 'semel.records'::regclass AND privilege_type IN ('SELECT', 'UPDATE')
    LOOP
        EXECUTE format('GRANT %s ON semel.fence_floor TO %s', allowed.privilege_type, allowed.role);
    END LOOP;
END $$;
