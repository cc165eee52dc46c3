# shellcheck shell=bash
# What the walk-through scripts share. Each prints what a document promises beside what happened,
# and fails at the end where the two differ.
set -euo pipefail
export RUST_BACKTRACE=0 # errors are shown as they are
unset "${!SEMEL_@}"     # the scripts have settings of their own

here=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
work=$(mktemp -d)
pids=()
kept=0 other=0 wrong=0

# Ends what the script started.
clean_up() {
  local pid
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>> "$work/ended" || true; done
  wait 2>> "$work/ended"
  rm -rf "$work"
}
trap clean_up EXIT

needs() {
  local program
  for program in "$@"; do
    command -v "$program" >> "$work/programs" || { echo "$program is not installed" >&2; exit 1; }
  done
}

title() { printf '\n%s\n' "$1"; }

# Two words for the lines, the ID, what was asked for, what happened, and a pattern to match.
_compare() {
  # shellcheck disable=SC2053 # it is a pattern
  if [[ $5 == $6 ]]; then
    printf '%-8s %-9s %s\n         %-9s %s\n' "$3" "$1" "$4" "$2" "$5"
  else
    wrong=$((wrong + 1))
    printf '%-8s %-9s %s\n         MISMATCH  %s, expected %s\n' "$3" "$1" "$4" "$5" "$6"
  fi
}

# promise ID WHAT HAPPENED PATTERN: Semel does what the document says.
promise() { kept=$((kept + 1)); _compare 'promised' 'happened' "$@"; }

# differs ID WHAT HAPPENED PATTERN: Semel does something else, for a reason that the page links to.
differs() { other=$((other + 1)); _compare 'promised' 'instead' "$@"; }

# figure ID WHAT HAPPENED PATTERN: the document gives no figure; this is ours.
figure() { _compare 'no figure' 'measured' "$@"; }

# Starts a program in the background; what it says goes to a file.
start() {
  local log=$1
  shift
  "$@" > "$work/$log.log" 2>&1 &
  started=$!
  pids+=("$started")
}

# Waits until a command succeeds.
until_ok() {
  local _
  for _ in $(seq 600); do
    if "$@" >> "$work/waited" 2>&1; then return; fi
    sleep 0.1
  done
  echo "waited a minute in vain for: $*" >&2
  tail -n 5 "$work"/*.log >&2
  exit 1
}

# Kills a process as a machine that fails does.
crash() {
  kill -9 "$1"
  wait "$1" 2>> "$work/ended" || true
}

finish() {
  printf '\n%s promises kept, %s done in another way, %s broken\n' "$kept" "$other" "$wrong"
  [[ $wrong == 0 ]]
}
