#!/usr/bin/env bash
# The requirements document on jobs, tried in its own order against `semel serve`:
# DATABASE_URL=postgres://… bash walk.sh
source "$(dirname "$0")/../walk.sh"
needs semel curl jq
: "${DATABASE_URL:?set it to a PostgreSQL database}"
api=127.0.0.1:${API_PORT:-8080} admin=127.0.0.1:${ADMIN_PORT:-8081}

cat > "$work/semel.toml" <<END
[listener]
address = "$api"
[store]
url = "$DATABASE_URL"
[api]
access = "loopback"
[jobs]
enabled = true
max_queued_per_kind = 3
[admin]
address = "$admin"
open = true
[audit]
file = "$work/audit.jsonl"
END
start semel semel serve --config "$work/semel.toml"
until_ok curl -sf "http://$api/_semel/readyz"

run=$(date +%s%N) # keys of this run
mesh() { curl -sS "http://$api/mesh/$1" -H 'Content-Type: application/json' -d "$2"; }
code() { curl -sS -o "$work/answer" -w '%{http_code}' "http://$api/mesh/$1" -H 'Content-Type: application/json' -d "$2"; }
# A figure of the metrics, over all its labels.
metric() { curl -sS "http://$admin/metrics" | awk -v name="$1" 'index($0, name "{") == 1 { sum += $NF } END { print sum + 0 }'; }
# How many events of a kind the audit trail has of this run.
audited() { grep -c "\"$1\"" "$work/audit.jsonl" || true; }
jobs_of() { semel jobs list --admin "http://$admin" --json | jq --arg kind "$1" '[.jobs[] | select(.kind == $kind)] | length'; }
order() { jq -cn --arg key "$1-$run" --arg kind "$kind" --argjson cents "$2" '{idempotency_key: $key, kind: $kind, params: {order: $key, cents: $cents}, client: {node_id: "till-7"}}'; }
kind=charge-$run

title '1. Submit'
hits=$(metric semel_busy_total) replays=$(metric semel_replays_total) conflicts=$(metric semel_mismatches_total) settled=$(metric semel_settled_total)
first=$(mesh submit_request "$(order A 4200)")
job=$(jq -r .job_id <<< "$first")
promise J1.2 'the answer has ok, request_id, job_id, dedup and status' \
  "$(jq -c 'keys' <<< "$first")" '\["dedup","job_id","ok","request_id","status"\]'
promise J1.3 'a new key: accepted, and enqueued' \
  "$(jq -r '"\(.status), dedup \(.dedup), "' <<< "$first")$(jobs_of "$kind") job" 'accepted, dedup false, 1 job'

title '2. Submit it again'
for n in 2 3 4 5 6 7 8 9 10; do mesh submit_request "$(order A 4200)" > "$work/again.$n" & wait_for[n]=$!; done
wait "${wait_for[@]}"
promise J7.1 'ten submissions: one is enqueued, nine are duplicates' \
  "$(jobs_of "$kind") job, $(cat "$work"/again.* | jq -s 'map(select(.dedup)) | length') duplicates" '1 job, 9 duplicates'
promise J1.4 'a known key: in_progress, and nothing is enqueued' \
  "$(cat "$work"/again.* | jq -r .status | sort -u)" in_progress
promise J3.6 'request_id and job_id are kept with the key' \
  "$(cat "$work"/again.* | jq -c '[.request_id, .job_id]' | sort -u | grep -c "$job") pair of ids" '1 pair of ids'
promise J2.1 'the hash is over the canonical JSON: the order of members does not count' \
  "$(mesh submit_request "$(order A 4200 | jq -c '.params |= {cents, order}')" | jq -r .status)" in_progress
keyless=$(order A 1 | jq -c 'del(.idempotency_key)')
promise J2.3 'without a key each submission is a job, with a request_id' \
  "$( (mesh submit_request "$keyless"; mesh submit_request "$keyless") | jq -s 'map(.request_id) | unique | length') request_ids, $(jobs_of "$kind") jobs" '2 request_ids, 3 jobs'

title '3. Submit something else with the key'
promise J2.6 'the same key with another payload: 409' "$(code submit_request "$(order A 1)") $(jq -r .code "$work/answer")" '409 idempotency_conflict'
until_ok grep -q IDEMPOTENCY_KEY_COLLISION "$work/audit.jsonl"
promise J2.7 'the collision is audited' "$(audited IDEMPOTENCY_KEY_COLLISION) IDEMPOTENCY_KEY_COLLISION" '1 IDEMPOTENCY_KEY_COLLISION'
promise J8.2 'and counted' "$(($(metric semel_mismatches_total) - conflicts)) more in semel_mismatches_total" '1 more in *'

title '4. A worker crashes'
kind=refund-$run
job=$(mesh submit_request "$(order B 4200)" | jq -r .job_id)
# A worker: a process of its own that takes a job for a second and never ends.
worker() { mesh lease "{\"worker\": \"$1\", \"kinds\": [\"$kind\"], \"lease_ms\": 1000}" > "$work/$1.lease"; exec sleep 600; }
worker w-1 > "$work/w-1.log" 2>&1 & worker=$!
pids+=("$worker")
until_ok grep -q lease_token "$work/w-1.lease"
crash "$worker"
promise J1.4 'while the crashed worker holds the job: in_progress' "$(mesh submit_request "$(order B 4200)" | jq -r .status)" in_progress
taken=$(mesh lease "{\"worker\": \"w-2\", \"kinds\": [\"$kind\"], \"lease_ms\": 30000, \"wait_ms\": 20000}" | jq -c '.jobs[0]')
promise J4.4 'the reaper puts the same job back, under the same id' \
  "$([[ $(jq -r .job_id <<< "$taken") == "$job" ]] && echo the same), start $(jq .attempt <<< "$taken") of $(jq .max_attempts <<< "$taken"), $(jobs_of "$kind") job" 'the same, start 2 of 5, 1 job'
late=$(jq -c '.jobs[0] | {lease_token, result: "too late"}' "$work/w-1.lease")
promise J4.4 'the crashed worker changes nothing any more' "$(code "jobs/$job/complete" "$late") $(jq -r .code "$work/answer")" '409 jobs_lease_lost'

title '5. The job is done'
mesh "jobs/$job/complete" "$(jq -c '{lease_token, result: {refund: "re_1"}}' <<< "$taken")" > "$work/done"
again=$(mesh submit_request "$(order B 4200)")
promise J7.3 'submit, complete, submit again: completed, with the stored answer' "$(jq -c '[.status, .result, .dedup]' <<< "$again")" '\["completed",{"refund":"re_1"},true\]'
mesh submit_request "$(order C 1)" > "$work/submitted"
taken=$(mesh lease "{\"worker\": \"w-2\", \"kinds\": [\"$kind\"]}" | jq -c '.jobs[0]')
mesh "jobs/$(jq -r .job_id <<< "$taken")/fail" "$(jq -c '{lease_token, error: "card expired", retryable: false}' <<< "$taken")" > "$work/failed"
promise J1.6 'known and failed for good: the stored status' "$(mesh submit_request "$(order C 1)" | jq -c '[.status, .error]')" '\["failed","card expired"\]'
promise J4.3 'the end of a job is counted' "$(($(metric semel_settled_total) - settled)) more in semel_settled_total" '2 more in *'

title '6. The queue is full'
kind=flood-$run
for n in 1 2 3; do mesh submit_request "$(order "D$n" 1)" > "$work/submitted"; done
full() { [[ $(code submit_request "$(order "E$RANDOM" 1)") == 429 ]]; }
until_ok full
promise J7.4 'a full queue is 429, and worth a retry' "$(jq -c '[.status, .code, .retryable]' "$work/answer")" '\[429,"jobs_queue_full",true\]'
promise J7.4 'a known key is answered all the same' "$(mesh submit_request "$(order D1 1)" | jq -r .status)" in_progress

title '7. What operators see'
hits=$(($(metric semel_busy_total) - hits)) replays=$(($(metric semel_replays_total) - replays))
promise J8.3 'hits rise when submissions are retried' "$hits in progress, $replays completed or failed" '12 in progress, 2 completed or failed'
promise J5.5 'the size of the store' "$(metric semel_store_records) records in semel_store_records" '* records in *'
all_audited() { (($(audited IDEMPOTENCY_HIT) >= 14)); }
until_ok all_audited
promise J5.7 'IDEMPOTENCY_HIT is a line of JSON with the status' \
  "$(grep '"IDEMPOTENCY_HIT"' "$work/audit.jsonl" | jq -r '.detail.state' | sort | uniq -c | awk '{ printf "%s%s %s", sep, $1, $2; sep = ", " }')" '*1 completed*'
promise J5.11 'of a key at most 8 characters are written anywhere' "$(cat "$work/audit.jsonl" "$work/semel.log" | grep -c "[A-E][0-9]*-$run" || true) whole keys in audit trail and log" '0 whole keys *'
finish
