-- +goose Up
-- +goose StatementBegin
-- throughline_require ends the transaction with SQLSTATE TL001 unless actual is what was expected. A statement in a
-- pipelined batch cannot be followed by a decision of the client, so this one is made here: a compare-and-set wraps the
-- number of rows it changed, or the version it found, and everything else in the batch goes with it.
-- Volatile, so that the planner neither evaluates it early nor leaves it out. It does not run in a CTE that nothing reads.
CREATE FUNCTION throughline_require(actual bigint, expected bigint, what text) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF actual IS DISTINCT FROM expected THEN
        RAISE EXCEPTION USING
            ERRCODE = 'TL001',
            MESSAGE = format('%s: expected %s, found %s', what, coalesce(expected::text, 'null'), coalesce(actual::text, 'null'));
    END IF;
    RETURN actual;
END
$$;
-- +goose StatementEnd
