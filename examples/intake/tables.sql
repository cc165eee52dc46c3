CREATE TABLE IF NOT EXISTS submissions (
    id     bigserial PRIMARY KEY,
    intake text  NOT NULL,
    state  text  NOT NULL DEFAULT 'draft',
    fields jsonb NOT NULL DEFAULT '{}'
);
-- Everything that happened to a submission. `request` is the same on every run of one request, so that a run after a crash
-- finds what the run before it did. It is emptied once the key was forgotten and is used again.
CREATE TABLE IF NOT EXISTS submission_events (
    id            bigserial PRIMARY KEY,
    submission_id bigint      NOT NULL REFERENCES submissions,
    type          text        NOT NULL,
    at            timestamptz NOT NULL DEFAULT now(),
    request       text,
    original_id   bigint,
    replay_number int,
    key_prefix    text
);
ALTER TABLE submission_events ADD COLUMN IF NOT EXISTS key_prefix text;
ALTER TABLE submission_events ADD COLUMN IF NOT EXISTS actor text;
CREATE UNIQUE INDEX IF NOT EXISTS submission_events_request ON submission_events (request) WHERE type <> 'submission.replayed';
-- Webhooks to be delivered, by something else.
CREATE TABLE IF NOT EXISTS webhooks (id bigserial PRIMARY KEY, submission_id bigint NOT NULL REFERENCES submissions);
