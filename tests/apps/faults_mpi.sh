#!/usr/bin/env bash
# Bad input on processes, and what only processes can have: other options or files by rank, a killed rank.
. "$CLEAVE_SOURCE/tests/apps/faults.bash"

bad_input "$CLEAVE_MPIRUN" -n 2 "$gpt" train "${tiny[@]}"

# Other arguments on the second rank.
each() {
  local pattern=$1 second=("${@:2}")
  fails "$pattern" "$CLEAVE_MPIRUN" -n 1 "$gpt" train "${tiny[@]}" : -n 1 "$gpt" train "${tiny[@]}" "${second[@]}"
}
head -c 10000 "$folder/text" >"$folder/other"
each "(rank 1 failed: |).*missing does not exist" --data "$folder/missing"
each "rank 1 has other options than rank 0" --seed 5
each "rank 1 has other data than rank 0" --data "$folder/other"
# Folders of one name that are others on the second rank.
for steps in 2 3; do
  mkdir "$folder/disk$steps"
  passes "$gpt" train "${tiny[@]}" --steps "$steps" --checkpoints "$folder/disk$steps/run"
  mv "$folder/disk$steps/run/step-0000000$steps" "$folder/disk$steps/one"
done
disks() {
  fails "$1" "$CLEAVE_MPIRUN" -n 1 -wdir "$folder/disk2" "$gpt" train "${tiny[@]}" --steps 4 --resume "$2" : \
    -n 1 -wdir "$folder/disk3" "$gpt" train "${tiny[@]}" --steps 4 --resume "$2"
}
disks "one is not the same on rank 1 as on rank 0" one
mv "$folder/disk3/one" "$folder/disk3/run/step-00000002"
rm "$folder/disk3/run/latest"
mv "$folder/disk2/one" "$folder/disk2/run/step-00000002"
disks "step-00000002 is not the same on rank 1" run
fails "gpt generate runs on one rank, not on 2" "$CLEAVE_MPIRUN" -n 2 "$gpt" generate --model "$folder/text"

for signal in INT TERM; do
  interrupted $signal 0 "interrupted" "$CLEAVE_MPIRUN" -n 2 "$gpt" train "${tiny[@]}"
done

# A rank that is killed: mpirun ends the others, with the code of the signal, and says which it was.
cat >"$folder/numbered" <<'END'
#!/bin/sh
echo $$ >"$1.$OMPI_COMM_WORLD_RANK"
shift
exec "$@"
END
chmod +x "$folder/numbered"
victim=$folder/pid.1
interrupted KILL 0 "rank 1 .*signal 9" "$CLEAVE_MPIRUN" -n 2 "$folder/numbered" "$folder/pid" "$gpt" train "${tiny[@]}"
finish
