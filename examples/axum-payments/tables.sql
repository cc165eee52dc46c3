-- Of several processes that start at once, one makes the tables.
SELECT pg_advisory_xact_lock(1);
CREATE TABLE IF NOT EXISTS accounts (name text PRIMARY KEY, cents bigint NOT NULL CHECK (cents >= 0));
INSERT INTO accounts VALUES ('alice', 10000), ('bob', 0) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS ledger (id bigserial PRIMARY KEY, taker text, giver text, cents bigint);
-- The payment provider's side: it honours keys, as good ones do.
CREATE TABLE IF NOT EXISTS provider_payments (key text PRIMARY KEY, id bigserial, kind text, cents bigint, asked int);
