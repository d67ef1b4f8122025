#!/usr/bin/env bash
# A rank that is killed: the job is gone within 10 seconds, goes on from its newest checkpoint, also on another number of
# ranks, and ends with the parameters of a run that was left alone.
source "$CLEAVE_SOURCE/tests/apps/resume.bash"
common+=(--steps 40 --dim 48 --seq 48 --batch 12) # long enough to be killed in between
cat >"$folder/numbered" <<'END'
#!/bin/sh
echo $$ >"$1.$OMPI_COMM_WORLD_RANK"
shift
exec "$@"
END
chmod +x "$folder/numbered"
mpirun=("$CLEAVE_SOURCE/scripts/mpirun")
launch() { "${mpirun[@]}" -n "$1" "$folder/numbered" "$folder/pid" "$gpt" "${@:2}"; }

# interrupted NAME RANKS ARGUMENT...: kills rank 1 once the first checkpoint is there.
interrupted() {
  local start victim i job
  run "$@" &
  job=$!
  for ((i = 0; i < 600; ++i)); do
    [ -e "$folder/$1/latest" ] && break
    sleep 0.05
  done
  victim=$(cat "$folder/pid.1")
  start=$SECONDS
  kill -9 "$victim" || fault "$1: rank 1 had ended already"
  wait "$job"
  code=$?
  while kill -0 "$(cat "$folder/pid.0")" 2>/dev/null && [ $((SECONDS - start)) -le 10 ]; do sleep 0.1; done
  [ $((SECONDS - start)) -le 10 ] || fault "$1: $((SECONDS - start)) s until all were gone"
}

place=(--mesh dp=2 --plan zero3)
must_run whole 2 "${place[@]}"

interrupted killed 2 "${place[@]}"
[ "$code" -ne 0 ] || fault "exit code 0 after kill -9"
has "$folder/killed.out" "^rank 0: step [0-9]+, [a-z]+(, in [a-z_]+ .* over (dp|world))?: rank 1 died: its process"
must_run killed 2 "${place[@]}" --resume auto
has "$folder/killed.out" "goes on behind step [0-9]+"
same_numbers whole killed
same_model whole killed

interrupted moved 2 "${place[@]}"
must_run moved 4 --mesh dp=2,tp=2 --plan zero3_tp --resume auto
same_numbers whole moved 9

# The launcher starts it again by itself.
mpirun+=(--restarts 2)
interrupted again 2 "${place[@]}" --resume auto
[ "$code" -eq 0 ] || { fault "again: exit code $code" && cat "$folder/again.out"; }
has "$folder/again.out" "restart 1 of 2"
same_numbers whole again
same_model whole again
finish
