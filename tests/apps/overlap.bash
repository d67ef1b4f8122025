# Sourced by the tests of --overlap: the model that is saved after some steps is the same, bit for bit.
set -u
gpt=$CLEAVE_BIN/gpt
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat "$CLEAVE_SOURCE"/apps/gpt/*.cpp >"$folder/text"
cat >"$folder/zero3.toml" <<'END'
[parameter]
"**.weight" = "dp, ... => ..."
"**.bias" = "dp, ... => ..."
[forward]
"input" = ["dp, -"]
END
small=(--data "$folder/text" --layers 3 --dim 48 --heads 6 --seq 17 --batch 4 --steps 6 --dropout 0.1)
failed=0

# threads N COMMAND... | processes N COMMAND...: how ranks are made
threads() { timeout 60 "${@:2}" --ranks "$1"; }
processes() { timeout 60 "$CLEAVE_MPIRUN" -n "$1" "${@:2}"; }

# same LAUNCHER RANKS MESH PLAN
same() {
  local launcher=$1 ranks=$2 mesh=$3 plan=$4 overlap
  for overlap in off on; do
    "$launcher" "$ranks" "$gpt" train "${small[@]}" --mesh "$mesh" --plan "$plan" --overlap "$overlap" \
      --save "$folder/$overlap" --log "$folder/$overlap.log" >"$folder/out" 2>&1 || {
      failed=$((failed + 1))
      echo "FAILED: $*, overlap $overlap"
      tail -n 5 "$folder/out"
    }
  done
  cmp "$folder/off" "$folder/on" || {
    failed=$((failed + 1))
    echo "FAILED: other numbers with overlap: $*"
  }
  rm -f "$folder/off" "$folder/on"
}

same_everywhere() {
  same "$1" 2 dp=2 dp
  same "$1" 2 tp=2 tp
  same "$1" 2 dp=2 "$folder/zero3.toml"
  same "$1" 4 dp=4 dp
  same "$1" 4 dp=4 "$folder/zero3.toml"
  same "$1" 4 dp=2,tp=2 dp_tp_sp
}
finish() {
  [ "$failed" -eq 0 ] && echo ok
  exit $((failed > 0))
}
