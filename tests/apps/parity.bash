# Sourced by the parity tests: `gpt train --compare single` over plans, ranks and sizes that do not divide.
set -u
gpt=$CLEAVE_BIN/gpt
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$CLEAVE_SOURCE/LICENSE" "$folder/text" # a text that stays as it is: numbers near a bound would move with it

# Heads of size 8; every kind of positions, norm and head stands beside several numbers of heads.
sizes=(
  "--heads 5 --dim 40 --kv-heads 1"
  "--heads 5 --dim 40 --kv-heads 5 --tied"
  "--heads 6 --dim 48 --kv-heads 1 --positions rope"
  "--heads 6 --dim 48 --kv-heads 2 --norm rms"
  "--heads 6 --dim 48 --kv-heads 3 --tied --positions rope --norm rms"
  "--heads 6 --dim 48 --kv-heads 6"
)
# ranks, mesh, plan
placements=(
  "2 dp=2 dp" "2 tp=2 tp" "2 tp=2 tp_sp" "2 dp=2,tp=1 dp_tp" "2 dp=1,tp=2 dp_tp_sp"
  "4 dp=4 dp" "4 tp=4 tp" "4 tp=4 tp_sp" "4 dp=2,tp=2 dp_tp" "4 dp=2,tp=2 dp_tp_sp"
)
runs=0
failed=0

# threads N COMMAND... | processes N COMMAND...: how ranks are made
threads() { "${@:2}" --ranks "$1"; }
processes() { "$CLEAVE_MPIRUN" -n "$1" "${@:2}"; }

# compare LAUNCHER DTYPE PLACEMENT SIZE: 20 steps with dropout
compare() {
  local launcher=$1 dtype=$2 size=$4 ranks mesh plan
  read -r ranks mesh plan <<<"$3"
  # shellcheck disable=SC2086 # a list of options
  if ! "$launcher" "$ranks" "$gpt" train --data "$folder/text" --mesh "$mesh" --plan "$plan" --dtype "$dtype" \
    --layers 2 --vocab 257 --ffn 50 --seq 17 --batch 3 --dropout 0.1 --steps 20 --compare single $size \
    >"$folder/out" 2>&1; then
    failed=$((failed + 1))
    echo "FAILED: $launcher $ranks, $mesh $plan, $dtype, $size"
    tail -n 6 "$folder/out"
  elif ! grep -q "^step 20/20 .*gradient norm" "$folder/out"; then
    failed=$((failed + 1))
    echo "FAILED: no step 20 was compared: $launcher $ranks, $mesh $plan, $dtype, $size"
  fi
  runs=$((runs + 1))
}

finish() {
  echo "note: parity: $runs runs of 20 steps compared with one device, $failed failed"
  [ "$failed" -eq 0 ] && [ "$runs" -gt 0 ]
}
