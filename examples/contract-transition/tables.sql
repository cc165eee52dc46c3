CREATE TABLE IF NOT EXISTS contracts (
    id      bigserial PRIMARY KEY,
    status  text   NOT NULL DEFAULT 'pending',
    version bigint NOT NULL DEFAULT 1
);
CREATE TABLE IF NOT EXISTS proofs (
    id          bigserial PRIMARY KEY,
    contract_id bigint NOT NULL REFERENCES contracts,
    from_status text   NOT NULL,
    to_status   text   NOT NULL
);
-- The caller's, in a database of its own in real life: what is to be asked for, written with whatever made it necessary.
CREATE TABLE IF NOT EXISTS outbox (
    id          bigserial PRIMARY KEY,
    key         text   NOT NULL UNIQUE,
    contract_id bigint NOT NULL,
    to_status   text   NOT NULL,
    asked       int    NOT NULL DEFAULT 0,
    answer      text
);
