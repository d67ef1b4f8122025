# Sourced by the tests of bad input: runs that must end soon, with exit code 1 and a clear error on every rank.
set -u
export OMPI_MCA_odls_base_sigkill_timeout=1 # many runs fail here, and each takes it
gpt=$CLEAVE_BIN/gpt
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tiny=(--layers 2 --dim 16 --heads 2 --seq 16 --batch 2 --steps 3 --data "$folder/text")
head -c 20000 "$CLEAVE_SOURCE/ops/op.h" >"$folder/text"
head -c 20000 "$CLEAVE_SOURCE/core/tensor.h" >>"$folder/text"
: >"$folder/empty"
mkdir "$folder/nothing"
faults=0
ranks=2

# plan NAME LINE...: a plan file
plan() {
  printf '%s\n' "${@:2}" >"$folder/$1.toml"
  echo "$folder/$1.toml"
}
fault() {
  echo "$name: $1"
  echo "$out"
  faults=$((faults + 1))
}
# fails PATTERN COMMAND...: within 10 seconds, with exit code 1, with a line on each rank that matches.
fails() {
  local start=$SECONDS rank
  name="${*:2}"
  out=$(timeout 60 "${@:2}" 2>&1)
  code=$?
  [ "$code" -eq 1 ] || fault "exit code $code"
  [ $((SECONDS - start)) -le 10 ] || fault "took $((SECONDS - start)) s"
  for ((rank = 0; rank < ranks; ++rank)); do
    grep -qE "^rank $rank: .*$1" <<<"$out" || fault "no line of rank $rank like '$1'"
  done
}
# interrupted SIGNAL CODE PATTERN COMMAND...: a long run, sent a signal after its first step (itself, or the process whose
# number stands in the file $victim), ends within 10 seconds with this code (0: any but 0) and a line like the pattern.
victim=
interrupted() {
  local signal=$1 expected=$2 pattern=$3 pid start i
  name="$signal: ${*:4}"
  : >"$folder/out"
  "${@:4}" --steps 100000000 >"$folder/out" 2>&1 &
  pid=$!
  for ((i = 0; i < 300; ++i)); do
    grep -q "^step 1/" "$folder/out" && break
    sleep 0.1
  done
  start=$SECONDS
  kill "-$signal" "$(cat "$victim" 2>/dev/null || echo "$pid")"
  wait "$pid"
  code=$?
  out=$(tail -n 20 "$folder/out")
  [ "$code" -eq "$expected" ] || { [ "$expected" -eq 0 ] && [ "$code" -ne 0 ]; } || fault "exit code $code"
  [ $((SECONDS - start)) -le 10 ] || fault "took $((SECONDS - start)) s"
  grep -qE "$pattern" <<<"$out" || fault "no line like '$pattern'"
}
# passes COMMAND...
passes() {
  name="$*"
  out=$(timeout 60 "$@" 2>&1) || fault "exit code $?"
}

# What is wrong whichever way the ranks were made: bad_input COMMAND... is `gpt train` on two ranks.
bad_input() {
  passes "$@" --mesh tp=2 --plan tp
  fails "'tp_ps' is neither a file nor a ready plan; the nearest ready ones are tp_sp" "$@" --plan tp_ps
  fails "\"tokens.weight\".*the nearest are token.weight" \
    "$@" --mesh tp=2 --plan "$(plan parameter '[parameter]' '"tokens.weight" = "tp, -"')"
  fails "blocks.0.mpl.input.*blocks.0.mlp" \
    "$@" --mesh tp=2 --plan "$(plan module '[forward]' '"blocks.0.mpl.input" = ["tp, -, -"]')"
  fails "tp.*twice" "$@" --mesh tp=2 --plan "$(plan twice '[parameter]' '"token.weight" = "tp, tp"')"
  fails "no axis pp" "$@" --mesh tp=2 --plan "$(plan absent '[parameter]' '"token.weight" = "pp, -"')"
  fails "dims" "$@" --mesh tp=2 --plan "$(plan dims '[parameter]' '"token.weight" = "tp"')"
  fails "axis tp, which mesh\(dp=2\) lacks" "$@" --mesh dp=2 --plan tp
  fails "mesh\(tp=3\).*3 places for 2 ranks" "$@" --mesh tp=3
  fails "missing does not exist" "$@" --data "$folder/missing"
  fails "empty holds no tokens" "$@" --data "$folder/empty"
  fails "nothing holds no tokens" "$@" --data "$folder/nothing"
  fails "step 2: the loss is (nan|inf); the first module whose output is not finite is (token|position|blocks\.)" \
    "$@" --lr 1e30 --warmup 0
  fails "no/folder/model cannot be written" "$@" --save "$folder/no/folder/model"
  fails "no/folder/log cannot be written" "$@" --log "$folder/no/folder/log"
}

finish() {
  [ "$faults" -eq 0 ] && echo ok
  exit $((faults > 0))
}
