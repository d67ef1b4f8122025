# Sourced by the tests of runs that go on: `launch N ARGUMENT...` is gpt on N ranks.
set -u
gpt=$CLEAVE_BIN/gpt
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat "$CLEAVE_SOURCE"/apps/gpt/*.cpp >"$folder/text"
common=(--layers 2 --dim 20 --heads 2 --seq 16 --batch 6 --steps 12 --warmup 3 --lr 0.01 --dropout 0.1 --dtype f64
  --data "$folder/text" --checkpoint-every 4)
faults=0

fault() {
  echo "$1"
  faults=$((faults + 1))
}
# run NAME RANKS ARGUMENT...: checkpoints in NAME, output in NAME.out, log in NAME.log, model in NAME.model
run() {
  launch "$2" train "${common[@]}" --checkpoints "$folder/$1" --log "$folder/$1.log" --save "$folder/$1.model" \
    "${@:3}" >"$folder/$1.out" 2>&1
}
must_run() { run "$@" || { fault "$1: exit code $?" && cat "$folder/$1.out"; }; }
has() { grep -qE -e "$2" "$1" || { fault "$1: no line like '$2'" && cat "$1"; }; }
# What a log says of the numbers: step, loss, norm and rate, to DIGITS digits or all.
numbers() {
  sed -E 's/^\{"step":([0-9]+),"loss":([^,]+),"grad_norm":([^,]+),"lr":([^,]+),.*/\1 \2 \3 \4/' "$folder/$1.log" |
    awk -v digits="${2:-17}" '{ printf "%d %." digits "g %." digits "g %." digits "g\n", $1, $2, $3, $4 }'
}
same_numbers() {
  [ "$(numbers "$1" "${3:-17}")" = "$(numbers "$2" "${3:-17}")" ] || {
    fault "$2: other numbers than $1"
    diff <(numbers "$1" "${3:-17}") <(numbers "$2" "${3:-17}") | head -n 6
  }
}
same_model() { cmp -s "$folder/$1.model" "$folder/$2.model" || fault "$2: another model than $1"; }

finish() {
  [ "$faults" -eq 0 ] && echo ok
  exit $((faults > 0))
}
