#!/bin/sh
# The HTTP API with curl alone: submit, wait, result, bulk, events, a dead letter
# that is sent again. Needs `windlass dev`, whose demo kinds it uses.
set -eu
: "${WINDLASS_SERVER:=http://127.0.0.1:7450}"
url=$WINDLASS_SERVER/v1

fail() { echo "failed: $*" >&2; exit 1; }
# -f: an answer of 400 or more ends this script.
get() { curl -fsS "$url/$1"; }
post() { curl -fsS -X POST -H 'content-type: application/json' -d "$2" "$url/$1"; }
# The first text field of that name. A real program reads JSON with a JSON reader.
field() { sed -n 's/.*[{,]"'"$1"'":"\([^"]*\)".*/\1/p' | head -n 1; }
first_id() { sed -n 's/^{"id":"\([^"]*\)".*/\1/p'; }

mark=$(get stats | field newest_event) # events are read from here on

echo "1. submit, and the same again with its idempotency key"
key="curl-$$-$(date +%s)"
hello='{"kind":"demo.hello","payload":{"name":"curl"},"labels":{"from":"curl"}}'
submit() { curl -fsS -H "idempotency-key: $key" -d "$hello" "$url/tasks"; }
task=$(submit | first_id)
again=$(submit | first_id)
[ -n "$task" ] || fail "no task"
[ "$task" = "$again" ] || fail "the key gave a second task: $task, $again"
echo "   $task, twice"

echo "2. wait for its end, take its result"
state=$(get "tasks/$task?wait=30s" | field state)
[ "$state" = completed ] || fail "$task is $state"
result=$(get "tasks/$task/result")
[ "$result" = '"Hello curl"' ] || fail "the result is $result"
echo "   $result"

echo "3. three at once, all or nothing"
ids=$(post tasks/bulk '{"tasks":[{"kind":"demo.hello"},{"kind":"demo.hello"},{"kind":"demo.hello"}]}')
count=$(printf '%s' "$ids" | grep -o 'tsk_' | wc -l)
[ "$count" -eq 3 ] || fail "3 tasks were asked for: $ids"
status=$(curl -sS -o /dev/null -w '%{http_code}' -d '{"tasks":[{"kind":"demo.hello"},{"kind":"no.such"}]}' "$url/tasks/bulk")
[ "$status" = 422 ] || fail "an unknown kind got $status"
echo "   $ids"

echo "4. what happened to the first one"
events=$(get "events?after=$mark&task=$task" | grep -o '"type":"[^"]*"' | tr '\n' ' ')
case $events in *'"task.submitted"'*'"task.completed"'*) ;; *) fail "events: $events" ;; esac
echo "   $events"

echo "5. a dead letter, sent again with another payload"
bad=$(post tasks '{"kind":"demo.flaky","payload":{"fatal":true}}' | first_id)
state=$(get "tasks/$bad?wait=30s" | field state)
[ "$state" = failed ] || fail "$bad is $state"
echo "   $(get "dead-letters/$bad" | field message)"
post "dead-letters/$bad/requeue" '{"payload":{"fails":0}}' >/dev/null
state=$(get "tasks/$bad?wait=30s" | field state)
[ "$state" = completed ] || fail "$bad is $state after the requeue"
echo "   $(get "tasks/$bad/result")"
echo "done"
