#!/usr/bin/env bash
# The requirements document on transitions, tried in its own order against the example's service:
# DATABASE_URL=postgres://… bash walk.sh
source "$(dirname "$0")/../walk.sh"
needs contract-transition curl jq psql
: "${DATABASE_URL:?set it to a PostgreSQL database}"
export ADDRESS=127.0.0.1:${SERVICE_PORT:-3000}

sql() { psql "$DATABASE_URL" -qAtc "$1"; }
serve() { start service contract-transition; service=$started; until_ok answers; }
answers() { [[ $(curl -s -o "$work/ready" -w '%{http_code}' "http://$ADDRESS/") == 404 ]]; }
serve

contract=$(sql 'INSERT INTO contracts DEFAULT VALUES RETURNING id')
event=$(date +%s%N)
key=pazar:proof:status_change:$event
ask() { curl -sS "http://$ADDRESS/v1/contract/transition" -H 'Content-Type: application/json' -d "$1"; }
code() { curl -sS -o "$work/answer" -w '%{http_code}' "http://$ADDRESS/v1/contract/transition" -H 'Content-Type: application/json' -d "$1"; }
to() { jq -cn --arg key "$2" --argjson contract "$contract" --arg to "$1" '{idempotency_key: $key, contract_id: $contract, to: $to}'; }
proofs() { sql "SELECT count(*) FROM proofs WHERE contract_id = $contract"; }
status() { sql "SELECT status || ', version ' || version FROM contracts WHERE id = $contract"; }

title '1. The key is mandatory'
promise T1.1 'a missing or empty key is refused' \
  "$(code "$(to active x | jq -c 'del(.idempotency_key)')") and $(code "$(to active '')")" '400 and 400'
promise T1.2 'null is refused too' "$(code "$(to active x | jq -c '.idempotency_key = null')") $(cat "$work/answer")" '400 {"ok":false,*'
promise T1.5 'nothing happened' "$(status), $(proofs) proofs" 'pending, version 1, 0 proofs'

title '2. A transition'
first=$(ask "$(to active "$key")")
proof=$(jq .proof_id <<< "$first")
promise T5.1 'the answer has ok, from, to, contract_version and proof_id' "$(jq -c 'del(.proof_id)' <<< "$first") and a proof_id" \
  '{"ok":true,"from":"pending","to":"active","contract_version":"v2"} and a proof_id'

title '3. The outbox asks again'
promise T1.3 'the same response, byte for byte' "$([[ $(ask "$(to active "$key")") == "$first" ]] && echo the same bytes)" 'the same bytes'
promise T1.4 'the same proof_id, and no second proof' "$([[ $(ask "$(to active "$key")" | jq .proof_id) == "$proof" ]] && echo the same), $(proofs) proof" 'the same, 1 proof'
promise T1.5 'the status does not change again' "$(status)" 'active, version 2'
for n in 1 2 3 4 5 6 7 8 9 10; do ask "$(to cancelled "$key-2")" > "$work/at_once.$n" & wait_for[n]=$!; done
wait "${wait_for[@]}"
promise T4.8 'of ten at once one runs, the others get its response' \
  "$(sort -u "$work"/at_once.* | jq -c .ok | grep -c true) response, $(proofs) proofs" '1 response, 2 proofs'

title '4. The service restarts'
second=$(cat "$work/at_once.1")
crash "$service"
serve
promise T1.6 'killed and started again: the same response' "$([[ $(ask "$(to active "$key")") == "$first" && $(ask "$(to cancelled "$key-2")") == "$second" ]] && echo the same bytes), $(proofs) proofs" 'the same bytes, 2 proofs'
contract=$(sql 'INSERT INTO contracts DEFAULT VALUES RETURNING id')
ask "$(to active "$key-3")" > "$work/cut" 2>&1 & asker=$!
crash "$service"
wait "$asker" || true
serve
# Whatever became of the request that was cut off, its key knows.
done_by_now() { [[ $(ask "$(to active "$key-3")" | jq -r .ok) == true ]]; }
until_ok done_by_now
promise T4.9 'killed in the middle of a request: transition, proof and response are all there, once' "$(status), $(proofs) proof" 'active, version 2, 1 proof'

title '5. A transition that fails'
refused=$(ask "$(to pending "$key-4")")
promise T4.10 'a refusal is stored, with ok: false and a reason' "$refused" '{"ok":false,"reason":"a contract that is active can'"'"'t become pending"}'
sql "UPDATE contracts SET status = 'gone' WHERE id = $contract"
promise T4.10 'and replayed, even where another would be given by now' "$([[ $(ask "$(to pending "$key-4")") == "$refused" ]] && echo the same bytes)" 'the same bytes'
promise T4.12 'the same key with another request is noticed' "$(code "$(to cancelled "$key")")" 409

title '6. The outbox itself'
contract=$(sql 'INSERT INTO contracts DEFAULT VALUES RETURNING id')
sql "INSERT INTO outbox (key, contract_id, to_status) VALUES ('$key-5', $contract, 'active')"
answered() { [[ $(sql "SELECT answer IS NOT NULL FROM outbox WHERE key = '$key-5'") == t ]]; }
until_ok answered
sql "UPDATE outbox SET answer = NULL WHERE key = '$key-5'" # as if it had crashed before it noted the answer
until_ok answered
promise T2.1 'an outbox that asks again changes nothing twice' "asked $(sql "SELECT asked FROM outbox WHERE key = '$key-5'") times, $(status), $(proofs) proof" 'asked 2 times, active, version 2, 1 proof'

title '7. The table of keys'
promise T4.3 'key, scope, tenant, status, times and expiry can be read in SQL' \
  "$(sql "SELECT string_agg(column_name, ' ' ORDER BY ordinal_position) FROM information_schema.columns WHERE table_schema = 'semel' AND table_name = 'readable'")" \
  '*tenant scope hint state*created_at written_at*expires_at*'
promise T4.5 'statuses of finished requests' \
  "$(sql "SELECT string_agg(DISTINCT state, ' and ') FROM semel.readable WHERE scope = 'contract.transition'")" 'completed and failed'
promise T4.6 'keys are kept for seven days' \
  "$(sql "SELECT DISTINCT date_trunc('minute', expires_at - written_at) FROM semel.readable WHERE scope = 'contract.transition'")" '7 days'
differs T4.4 'the response is in the table as JSON' \
  "as bytes: $(sql "SELECT min(answer_bytes) > 0 FROM semel.readable WHERE scope = 'contract.transition'" | sed 's/t/each record has some/')" 'as bytes: each record has some'
finish
