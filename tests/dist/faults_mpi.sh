#!/usr/bin/env bash
# What ranks under mpirun say and how soon they end when one of them fails; each fault in a run of its own.
set -u
faults=0

# run NAME RANKS: the output in $out; ends with something else than 0 within 10 seconds.
run() {
  local start=$SECONDS
  out=$(timeout 60 "$CLEAVE_MPIRUN" -n "$2" "$CLEAVE_BIN/test_dist" --no-skip --test-suite="mpi faults" --test-case="$1" 2>&1)
  code=$?
  name="$1, $2 ranks"
  [ $((SECONDS - start)) -le 10 ] || fault "took $((SECONDS - start)) s"
}
fault() {
  echo "$name: $1"
  echo "$out"
  faults=$((faults + 1))
}
# says COUNT PATTERN: so many lines of the output match.
says() {
  local n
  n=$(grep -cE "$2" <<<"$out")
  [ "$n" -eq "$1" ] || fault "expected $1 lines like '$2', got $n"
}

for n in 2 4; do
  for name in exception 'exception in place'; do
    run "$name" "$n"
    [ "$code" -eq 0 ] || fault "a launch returned another code than 1" # each case checks that its launch returns 1
    says 1 '^rank 1: token 9 is out of range$'
    says $((n - 1)) '^rank [023]: rank 1 failed: token 9 is out of range$'
  done

  run "exception with calls under way" "$n"
  [ "$code" -eq 0 ] || fault "a launch returned another code than 1"
  says 1 '^rank 1: token 9 is out of range$'
  says $((n - 1)) '^rank [023]: rank 1 failed: token 9 is out of range$'

  run return "$n"
  [ "$code" -eq 0 ] || fault "a launch returned another code than 1"
  says "$n" "^rank [0-3]: rank 1 returned while rank [023] was in all_reduce 'norm' on world"

  run disagreement "$n"
  [ "$code" -eq 0 ] || fault "a launch returned another code than 1"
  says "$n" '^rank [0-3]: .*rank 0 calls all_reduce of 10 f32, sum; rank 1 calls all_reduce of 9 f32, sum'

  run ranks "$n"
  [ "$code" -eq 0 ] || fault "a launch returned another code than 1"
  says "$n" "^rank [0-3]: .*--ranks 7 under mpirun -n $n"

  run terminated "$n"
  [ "$code" -eq 0 ] || fault "a launch returned another code than 1"
  says 1 '^rank 1: interrupted \(SIGTERM\)$'
  says $((n - 1)) '^rank [023]: rank 1 failed: interrupted \(SIGTERM\)$'

  run killed "$n"
  [ "$code" -ne 0 ] || fault "exit code 0"
  says $((n - 1)) '^rank [023]: rank 1 died: its process [0-9]+ has ended without a word$'

  run circle "$n"
  [ "$code" -eq 0 ] || fault "a launch returned another code than 1"
  says "$n" "^rank [0-3]: .*rank 0 waits in all_reduce 'checkpoint' on world .* for rank 1, rank 1 waits in all_reduce 'grads' on dp .* for rank 0: these waits never end"

  run watchdog "$n"
  [ "$code" -eq 0 ] || fault "exit code $code"
  says $((n - 1)) "^\[watchdog\] rank [023] has waited .* in all_reduce 'grads' on world .* for rank 1: "
done
says 3 'rank 1 has told of no wait' # the last run: three ranks wait for rank 1, and know of each other
says 2 'rank 0 waits in all_reduce'

run busy 3
[ "$code" -ne 0 ] || fault "exit code 0"
says 1 '^rank 1: no such file$'
says 1 '^rank 2: rank 1 failed: no such file$'

[ "$faults" -eq 0 ] && echo ok
exit $((faults > 0))
