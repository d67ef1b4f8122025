#!/usr/bin/env bash
# Data that one rank lacks, or that are others there: an error on every rank before the first step.
source "$CLEAVE_SOURCE/tests/apps/resume.bash"
head -c 2000 "$folder/text" >"$folder/short"
cat >"$folder/with_data" <<'END'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] && data=$1 || data=$2
shift 2
exec "$@" --data "$data"
END
chmod +x "$folder/with_data"
common=(--layers 1 --dim 12 --heads 2 --seq 16 --steps 3)
launch() { timeout 60 "$CLEAVE_MPIRUN" -n "$1" "$folder/with_data" "$folder/$data" "$folder/text" "$gpt" "${@:2}"; }

data=none
run missing 3 && fault "a rank without data is no error"
has "$folder/missing.out" "rank 1: .*/none does not exist"
for rank in 0 2; do has "$folder/missing.out" "rank $rank: rank 1 failed: .*/none does not exist"; done
data=short
run other 3 && fault "a rank with other data is no error"
for rank in 0 1 2; do has "$folder/other.out" "rank $rank: rank 1 has other data than rank 0"; done
grep -q '^step' "$folder"/*.out && fault "a step was made"

finish
