#!/usr/bin/env bash
# The requirements document on tasks in a bucket, tried in its own order, with every request counted
# at the bucket: STORE_URL='s3://key:secret@bucket/folder?endpoint=http://…' bash walk.sh
source "$(dirname "$0")/../walk.sh"
needs bucket-tasks curl jq python3 sha256sum
: "${STORE_URL:?set it to a bucket, with credentials and endpoint}"
form='^s3://([^:]+:[^@]+)@([^/?]+)/?([^?]*)\?endpoint=http://([^/&]+)(.*)$'
[[ $STORE_URL =~ $form ]] || { echo 'STORE_URL: s3://key:secret@bucket/folder?endpoint=http://…' >&2; exit 1; }
user=${BASH_REMATCH[1]} bucket=${BASH_REMATCH[2]} server=${BASH_REMATCH[4]} more=${BASH_REMATCH[5]}
folder=${BASH_REMATCH[3]:+${BASH_REMATCH[3]}/}walk-$(date +%s%N)

# Everything goes through a proxy that writes down each request.
log=$work/requests
touch "$log"
start proxy python3 "$here/count.py" "$server" "$log"
until_ok test -s "$work/proxy.log"
export STORE_URL="s3://$user@$bucket/$folder?endpoint=http://$(cat "$work/proxy.log")$more"

submit() { bucket-tasks submit "$@" 2>> "$work/errors"; }
object() { curl -sS --user "$user" --aws-sigv4 aws:amz:us-east-1:s3 "http://$server/$bucket/$folder/$1"; }
mark() { lines=$(wc -l < "$log"); }
seen() { tail -n "+$((lines + 1))" "$log"; }
# The requests since the mark about tasks and keys, such as `2 GET, 1 PUT`. A refused PUT has its status.
requests() {
  seen | awk '$3 != "other" { r = $1 ($2 == 412 ? " that is refused" : ""); count[r]++ }
    END { for (r in count) print count[r], r }' | sort -k2 | paste -sd, | sed 's/,/, /g'
}
rate() { awk -v n="$1" -v seconds="$2" 'BEGIN { printf "%d", n / seconds + 0.5 }'; }

title '1. Submit'
first=$(submit charge-ORD-123 4200)
task=${first% *}
promise O4.2 'a new key: a task' "$first" 'job_* accepted'
promise O4.4 'the same key: the same task' "$(submit charge-ORD-123 4200)" "$task in_progress"
for n in 1 2 3 4 5 6 7 8 9 10; do submit charge-ORD-9 4200 > "$work/at_once.$n" & wait_for[n]=$!; done
wait "${wait_for[@]}"
promise O4.5 'ten at once: one task' "$(cut -d' ' -f1 "$work"/at_once.* | sort -u | wc -l) task, $(cat "$work"/at_once.* | grep -c accepted) accepted" '1 task, [0-9]* accepted'

title '2. The layout'
hash=$(printf 'charge_customer:charge-ORD-123' | sha256sum | cut -d' ' -f1)
object "idempotency/charge_customer/$hash.json" > "$work/record"
promise O2.2 'the record is at idempotency/{scope}/{sha256 of scope:key}.json' "$(jq -r .key "$work/record") at idempotency/charge_customer/${hash:0:8}….json" 'charge-ORD-123 at *'
promise O2.3 'with eight fields' "$(jq -c 'del(.status) | keys_unsorted' "$work/record")" \
  '\["key","key_hash","task_id","task_key","created_at","expires_at","task_type","input_hash"\]'
promise O2.1 'the task is at tasks/{shard}/{task_id}.json' "$(jq -r .task_key "$work/record" | sed "s#.*/tasks/#tasks/#")" "tasks/?/$(jq -r .task_id "$work/record").json"
promise O7.1 'keys are kept for 30 days' "$(jq -r '((.expires_at | sub("\\.[0-9]+"; "") | fromdate) - (.created_at | sub("\\.[0-9]+"; "") | fromdate)) / 86400 | round' "$work/record") days" '30 days'

title '3. The same key with another input'
if submit charge-ORD-123 1 > "$work/conflict"; then echo accepted >> "$work/errors"; fi
promise O6.1 'an error of its own' "$(tail -n 1 "$work/errors")" '*other parameters*'

title '4. Two workers, and one is killed'
TASK_MS=600000 start first bucket-tasks work
until_ok grep -q begun "$work/first.log"
slow=$(grep -c begun "$work/first.log")
crash "$started"
start second bucket-tasks work
promise O1.1 'while the task of the killed worker waits, a retry is no second task' "$(submit charge-ORD-123 4200)" "$task in_progress"
second_is_done() { (($(grep -c ' done' "$work/second.log") == 2)); }
until_ok second_is_done
bucket-tasks list > "$work/list"
promise O1.3 'the other worker does all tasks: each has run at least once' \
  "$(grep -c Done "$work/list") of $(wc -l < "$work/list") tasks done, $slow begun by the killed worker, $(grep -c 'started 2 times' "$work/list") started twice" '2 of 2 tasks done, 1 begun *, [12] started twice'
promise O4.4 'the same key leads to the finished task' "$(submit charge-ORD-123 4200)" "$task completed"

title '5. What it costs: requests at the bucket'
mark; submit - 4200 > "$work/said"
figure O9.1 'a submission without a key' "$(requests)" '1 PUT'
mark; submit charge-ORD-124 4200 3 > "$work/said"
differs O9.1 'with a key: 1 PUT more' "$(requests)" '3 PUT'
mark; submit charge-ORD-124 4200 3 > "$work/said"
differs O9.2 'a retry: 1 GET more' "$(requests)" '2 GET, 1 PUT that is refused'
mark; if submit charge-ORD-124 1 > "$work/said"; then false; fi
figure O9.2 'a conflict' "$(requests)" '1 GET, 1 PUT that is refused'
mark; bucket-tasks work > "$work/said" 2>> "$work/errors"
figure O9.3 'a worker that does two tasks and ends' "$(requests)" '*PUT*'
expired() { mark; [[ $(submit charge-ORD-124 4200 3) == *accepted ]]; }
until_ok expired
figure O9.2 'a retry after the key has expired' "$(requests)" '2 GET, 3 PUT, 1 PUT that is refused'
promise O7.4 'an expired record is overwritten: a new task' "$(bucket-tasks list | wc -l) tasks" '5 tasks'
bucket-tasks work > "$work/said" 2>> "$work/errors"

title '6. What waiting costs'
mark; bucket-tasks work > "$work/said" 2>> "$work/errors"
figure O9.3 'a worker looks for work once, and there is none' "$(requests)" '5 GET, 5 LIST'
figure O9.3 'and opened the bucket before' "$(seen | awk '$3 == "other"' | wc -l) requests to see that it keeps to conditional writes" '[1-9]* requests *'
mark
start idle1 bucket-tasks work --for-ever
idle1=$started
start idle2 bucket-tasks work --for-ever
sleep 5
crash "$idle1"
crash "$started"
count=$(seen | awk '$3 != "other"' | wc -l) lists=$(seen | awk '$1 == "LIST" && $3 != "other"' | wc -l)
figure O9.3 'two workers without work, for 5 seconds' "$(rate "$count" 10) requests a second and worker, $((100 * lists / count)) % of them LIST" '* requests a second and worker, *'
finish
