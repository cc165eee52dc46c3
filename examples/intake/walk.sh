#!/usr/bin/env bash
# The requirements document on intake, tried in its own order against the example's API, an agent and
# Prometheus: DATABASE_URL=postgres://… bash walk.sh
source "$(dirname "$0")/../walk.sh"
needs intake semel curl jq psql prometheus
: "${DATABASE_URL:?set it to a PostgreSQL database}"
python=${MCP_PYTHON:-python3} # with the package `mcp`
export ADDRESS=127.0.0.1:${SERVICE_PORT:-3000}
admin=127.0.0.1:${ADMIN_PORT:-8081} gateway=127.0.0.1:${API_PORT:-8080} prometheus=127.0.0.1:${PROMETHEUS_PORT:-9091}
export INTAKE=http://$ADDRESS

sql() { psql "$DATABASE_URL" -qAtc "$1"; }
serve() { start service intake; service=$started; until_ok answers; }
answers() { [[ $(curl -s -o "$work/ready" -w '%{http_code}' "$INTAKE/") == 404 ]]; }
serve

run=$(date +%s%N)
# post INTAKE/CALL KEY BODY: prints the status; head and body are in files.
post() {
  curl -sS -D "$work/head" -o "$work/body" -w '%{http_code}' "$INTAKE/api/intakes/$1" -H 'Content-Type: application/json' \
    ${2:+-H "Idempotency-Key: $2"} -d "$3"
}
id() { jq -r .submissionId "${1:-$work/body}"; }
header() { grep -i "^$1:" "$work/head" | cut -d' ' -f2- | tr -d '\r'; }
webhooks() { sql "SELECT count(*) FROM webhooks WHERE submission_id = ${1#sub_}"; }
acme='{"fields": {"companyName": "Acme Corp", "taxId": "12-3456789"}}'
call=vendor-onboarding/submit key=idem_$run

title '1. Submit: 201, 200, 409'
promise F7.1.2 'the first answer: 201, with ok, submissionId and state' "$(post $call "$key" "$acme") $(jq -c 'keys' "$work/body")" \
  '201 \["ok","state","submissionId"\]'
cp "$work/body" "$work/first"
first=$(id)
promise F2.4.1 'its replay: 200 with the same body' "$(post $call "$key" "$acme") $(cmp -s "$work/body" "$work/first" && echo the same bytes)" '200 the same bytes'
promise F2.3.1 'marked with Idempotent-Replayed' "$(header idempotent-replayed)" true
promise F2.3.2 'and X-Original-Request-Time in ISO 8601' "$(header x-original-request-time)" '20??-??-??T??:??:??*Z'
promise F1.2.2 'without a second webhook' "$(webhooks "$first") webhook" '1 webhook'
promise F2.4.2 'another payload: 409, conflict, not retryable' \
  "$(post $call "$key" "${acme/Acme/Evil}") $(jq -c '[.ok, .error.type, .error.retryable]' "$work/body")" '409 \[false,"conflict",false\]'
differs F6.5.3 'the message names the key' "$(grep -c "$key" "$work/body") keys in the answer" '0 keys *'
promise F1.2.3 'without a key, requests work as before' "$(post $call '' "$acme"), $(post $call '' "$acme")" '201, 201'

title '2. Ten at once'
key=idem_$run-ten
for n in 1 2 3 4 5 6 7 8 9 10; do
  curl -sS -o "$work/ten.$n" -w '%{http_code}\n' "$INTAKE/api/intakes/$call" -H 'Content-Type: application/json' -H "Idempotency-Key: $key" -d "$acme" > "$work/status.$n" & wait_for[n]=$!
done
wait "${wait_for[@]}"
promise F2.4.3 'one runs; the others wait and get its response as a replay' \
  "$(cat "$work"/status.* | sort | uniq -c | awk '{ printf "%s%s with %s", sep, $1, $2; sep = ", " }'), $(cat "$work"/ten.* | jq -r .submissionId | sort -u | wc -l) submission, $(webhooks "$(id "$work/ten.1")") webhook" \
  '9 with 200, 1 with 201, 1 submission, 1 webhook'

title '3. Restart, time to live, scopes'
crash "$service"
serve
promise F1.2.4 'killed and started again: still a replay' "$(post $call "idem_$run" "$acme") $(id)" "200 $first"
age() {
  sql "UPDATE semel.records SET written_us = written_us - 25 * 3600000000::bigint WHERE scope = 'intake:vendor-onboarding'"
  sql "UPDATE submission_events SET at = at - interval '25 hours'"
}
age # as if 25 hours had passed, and the service had been started since
crash "$service"
serve
promise F2.4.4 'after 24 hours the key makes a new submission' "$(post $call "idem_$run" "$acme") $([[ $(id) != "$first" ]] && echo another submission)" '201 another submission'
promise F6.1.1 'the same key in two intakes is two keys' "$(post access-request/submit "idem_$run" '{"fields": {"system": "billing"}}')" 201

title '4. A workflow in three steps, each sent twice'
flow=workflow-$run
steps=$(post vendor-onboarding/submissions "${flow}_create" '{"initialFields": {"companyName": "Acme Corp"}}')
draft=$(id)
steps="$steps $(post vendor-onboarding/submissions "${flow}_create" '{"initialFields": {"companyName": "Acme Corp"}}')"
set_fields() { curl -sS -X PATCH -o "$work/body" -w '%{http_code}' "$INTAKE/api/intakes/vendor-onboarding/submissions/$draft/fields" -H 'Content-Type: application/json' -H "Idempotency-Key: ${flow}_set" -d '{"fields": {"taxId": "12-3456789"}}'; }
steps="$steps, $(set_fields) $(set_fields)"
steps="$steps, $(post "vendor-onboarding/submissions/$draft/submit" "${flow}_submit" '') $(post "vendor-onboarding/submissions/$draft/submit" "${flow}_submit" '')"
promise F1.3.1 'create, set fields and submit take a key' "$steps, $(webhooks "$draft") webhook" '201 200, 200 200, 201 200, 1 webhook'
events() { curl -sS "$INTAKE/api/intakes/vendor-onboarding/submissions/$draft" > "$work/events"; (($(jq '.events | length' "$work/events") == 6)); }
until_ok events
promise F7.3.1 'a replay emits submission.replayed' "$(jq '[.events[] | select(.type == "submission.replayed")] | length' "$work/events") of 6 events" '3 of 6 events'
promise F7.3.3 'with submissionId, timestamp and payload' \
  "$(jq -c '.events[-1] | [(keys[]), (.payload | keys[])]' "$work/events")" '\["eventId","payload","submissionId","timestamp","type","idempotencyKey","originalEventId","replayNumber"\]'

title '5. An agent, through MCP'
token=$work/token
head -c 24 /dev/urandom | base64 > "$token"
start gateway semel mcp --store "sqlite://$work/mcp.db" --name vendor-onboarding --audit "$work/audit.jsonl" \
  --listen "$gateway" --admin "$admin" --admin-token-file "$token" -- "$python" "$here/tools.py"
until_ok curl -sf "http://$admin/readyz"
agent() { "$python" "$here/agent.py" "$@" "http://$gateway/mcp" 2>> "$work/agent.log"; }
key=idem_$run-agent
agent 'Acme Corp' "$key" 3 > "$work/calls"
promise F7.2.1 "the tool's schema has an optional idempotencyKey" "$(jq -s 'map(.takesKey) | all' "$work/calls")" true
promise F7.2.2 'a call with the same key is answered from the first' \
  "$(jq -rs '"\(map(.result.submissionId) | unique | length) submission, \(map(select(.replayed)) | length) of \(length) replayed"' "$work/calls")" '1 submission, 2 of 3 replayed'
submission=$(jq -rs '.[0].result.submissionId' "$work/calls")
promise F7.2.3 'the tools are of the same intakes as the HTTP API' \
  "$(curl -sS "$INTAKE/api/intakes/vendor-onboarding/submissions/$submission" | jq -r .state) in the API, $(webhooks "$submission") webhook" 'submitted in the API, 1 webhook'
agent 'Evil Corp' "$key" 1 > "$work/conflict"
promise F8.4.2 'the same key with other fields is refused' "$(jq -c '[.isError, .code]' "$work/conflict")" '\[true,"idempotency_conflict"\]'

title '6. Metrics, dashboard, alerts, audit'
sed 's/interval: 15s/interval: 1s/' "$here/../../deploy/prometheus/recording.yaml" > "$work/recording.yaml"
cp "$here/../../deploy/prometheus/alerts.yaml" "$work/alerts.yaml"
cat > "$work/prometheus.yml" <<END
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [recording.yaml, alerts.yaml]
scrape_configs:
  - job_name: semel
    authorization: {credentials_file: $token}
    static_configs: [{targets: ["$admin"]}]
END
start prometheus prometheus "--config.file=$work/prometheus.yml" "--storage.tsdb.path=$work/data" "--web.listen-address=$prometheus"
query() { curl -sS -G "http://$prometheus/api/v1/query" --data-urlencode "query=$1"; }
value() { query "$1" | jq -r '.data.result[0].value[1] // "nothing"'; }
scraped() { [[ $(value 'sum(semel_mismatches_total)') == 1 && $(value 'count_over_time(semel_store_up[1m])') -gt 2 ]]; }
until_ok scraped
promise F9.1.1.2 'request.replayed by intake and operation' "$(query 'sum by (scope) (semel_replays_total) > 0' | jq -r '.data.result[0] | "\(.metric.scope): \(.value[1])"')" \
  'vendor-onboarding/formbridge_vendor-onboarding_submit: 2'
promise F9.1.5.1 'conflict.total' "$(value 'sum(semel_mismatches_total)')" 1
firing() { curl -sS "http://$prometheus/api/v1/alerts" | jq -r '[.data.alerts[] | select(.state == "firing") | .labels.alertname] | unique | join(", ")'; }
promise F9.3.1.4 'one conflict is no alert' "firing: $(firing)" 'firing: '
agent 'Evil Corp' "$key" 12 > "$work/storm"
storm() { [[ $(firing) == *SemelMismatchStorm* ]]; }
until_ok storm
promise F9.3.1.4 'more than 5 conflicts a minute: critical' "firing: $(firing)" 'firing: SemelMismatchStorm'
promise F9.3.1.5 'each alert has a runbook' "$(curl -sS "http://$prometheus/api/v1/rules" | jq -r '.data.groups[].rules[] | select(.name == "SemelMismatchStorm") | .annotations.runbook')" 'docs/runbooks/SemelMismatchStorm.md'
jq -r '.panels[].targets[]?.expr' "$here/../../deploy/grafana/semel.json" | sed 's/\$scope/.*/g' > "$work/queries"
panels() {
  while read -r expression; do query "$expression" | jq -c '[.status, (.data.result | length > 0)]'; done < "$work/queries" > "$work/panels"
  (($(grep -c true "$work/panels") >= 25))
}
until_ok panels
promise F9.5.2 "the dashboard's queries are answered" "$(grep -c success "$work/panels") of $(wc -l < "$work/queries") queries, $(grep -c true "$work/panels") with data" "$(wc -l < "$work/queries") of * queries, * with data"
promise F9.4.1.3 'the audit trail has the key as a hash' "$(grep -c 'idempotency.key.created' "$work/audit.jsonl") created, $(grep -c 'idempotency.replay' "$work/audit.jsonl") replays, $(grep -c "$key" "$work/audit.jsonl" || true) whole keys" '1 created, 2 replays, 0 whole keys'
finish
