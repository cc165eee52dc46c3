-- The fence given, if it is above the floor as it is now. A claim reads the floor when its statement begins; a record may be
-- removed, and raise the floor, before the claim has written its own. Such a claim fails, like one that lost a race.
-- In PL/pgSQL, as each look of a volatile function sees what was committed by then.
CREATE FUNCTION semel.above_floor(fence bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF fence <= (SELECT floor FROM semel.fence_floor) THEN
        RAISE EXCEPTION 'a record was removed meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN fence;
END $$;
