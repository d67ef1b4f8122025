#!/usr/bin/env bash
# Runs of `gpt`: what is printed, logged and saved; the same numbers however a run is placed; text from a saved model.
set -u
gpt=$CLEAVE_BIN/gpt
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat "$CLEAVE_SOURCE"/apps/gpt/*.cpp >"$folder/text"
small=(--layers 2 --dim 24 --heads 3 --seq 32 --batch 4 --steps 30 --warmup 5 --lr 0.01 --dropout 0.1 --data "$folder/text")
faults=0

fault() {
  echo "$1"
  faults=$((faults + 1))
}
# has FILE PATTERN [COUNT]: so many lines match (1).
has() {
  local n
  n=$(grep -cE -e "$2" "$1")
  [ "$n" -eq "${3:-1}" ] || { fault "$1: expected ${3:-1} lines like '$2', got $n" && cat "$1"; }
}
# train NAME ARGUMENT...: output in NAME.out, log in NAME.log, model in NAME.model
train() {
  "$gpt" train "${small[@]}" --log "$folder/$1.log" --save "$folder/$1.model" "${@:2}" >"$folder/$1.out" 2>&1 ||
    { fault "$1: exit code $?" && cat "$folder/$1.out"; }
}
# losses NAME: to 4 digits
losses() { sed -E 's/.*"loss":([0-9]\.[0-9]{4}).*/\1/' "$folder/$1.log"; }

train single
train watched --trace "$folder/trace.json" --trace-steps 4:5 --profile
[ "$(losses watched)" = "$(losses single)" ] || fault "another run when it is watched"
cmp -s "$folder/watched.model" "$folder/single.model" || fault "another model when it is watched"
has "$folder/watched.out" '^steps 3 to 30 of rank 0$'
has "$folder/watched.out" '^backward +backward of linear +[0-9]+ .* %'
has "$folder/watched.out" '^ +all .* 100.00 %'
has "$folder/trace.json" '"name":"step [45]","cat":"interval"' 2
has "$folder/trace.json" '"name":"linear","cat":"op".*"out":\["f32\[4, 32, ' $((2 * 9))
"$gpt" train "${small[@]}" --ranks 2 --trace "$folder/no/trace.json" >"$folder/no.out" 2>&1 && fault "a trace that cannot be written is no error"
has "$folder/no.out" '--trace: .*/no/trace.json cannot be written' 2
has "$folder/no.out" '^step ' 0
has "$folder/single.out" '^model: .* M parameters, f32$'
has "$folder/single.out" '^step 30/30  loss .* held out [0-9.]+$'
has "$folder/single.out" '^held-out loss [0-9.]+ nats per byte'
has "$folder/single.out" '^ *[0-9.]* \|' 12
has "$folder/single.log" '^\{"step":[0-9]+,"loss":[0-9.]+,"grad_norm":[0-9.]+,"lr":[0-9.e-]+,"ms":[0-9.]+,"tokens_per_s":[0-9.]+,"peak_bytes":\[[0-9]+\],"comm":\[\].*\}$' 30
has "$folder/single.log" '"held_out":' 1
first=$(losses single | head -n 1) last=$(losses single | tail -n 1)
awk "BEGIN { exit !($last < $first - 1) }" || fault "the loss fell from $first to $last only"

"$gpt" plan --mesh dp=2,tp=2 --plan dp_tp_sp --layers 2 --dim 24 --heads 3 --seq 32 >"$folder/plan.toml" || fault "gpt plan"
train dp --ranks 2
train tp --ranks 3 --mesh tp=3 --plan tp_sp --no-deferred --eval-every 10
train file --ranks 4 --mesh dp=2,tp=2 --plan "$folder/plan.toml"
has "$folder/file.out" '^ranks: 4 \(threads\), mesh\(dp=2, tp=2\), plan .*/plan.toml$'
has "$folder/tp.log" '"held_out":' 3
has "$folder/tp.log" '"peak_bytes":\[[0-9]+,[0-9]+,[0-9]+\],"comm":\[.*\{"phase":"forward","axis":"tp","kind":"reduce_scatter","bytes":[0-9]+,"count":5\}' 30
has "$folder/dp.log" '"comm":\[\{"phase":"forward","axis":"dp","kind":"all_reduce","bytes":[0-9]+,"count":[0-9]\},\{"phase":"backward","axis":"dp","kind":"all_reduce","bytes":[0-9]+,"count":1\}' 30
for name in dp tp file; do
  paste <(losses single) <(losses $name) | awk '($1 - $2) ^ 2 > 4e-6 { exit 1 }' || fault "$name: other losses than single"
  [ "$(head -c 2000 "$folder/single.model" | tr -d '\0')" ] || fault "$name: no model"
  [ "$(wc -c <"$folder/$name.model")" -eq "$(wc -c <"$folder/single.model")" ] || fault "$name: a model of another size"
done
train half --ranks 2 --mesh tp=2 --plan tp_sp --dtype bf16
has "$folder/half.out" '^model: .* M parameters, bf16$'
paste <(losses single) <(losses half) | awk '($1 - $2) ^ 2 > ($1 * 0.02) ^ 2 { exit 1 }' ||
  fault "bf16: losses more than 2 % from f32"
awk "BEGIN { exit !($(wc -c <"$folder/half.model") < 0.6 * $(wc -c <"$folder/single.model")) }" ||
  fault "bf16: the weights are not of 16 bits"

[ "$(find "$folder" -name '*.tmp')" = "" ] || fault "temporary files are left"

write() { "$gpt" generate --model "$folder/$1.model" --prompt "#include" --tokens 40 "${@:2}"; }
text=$(write tp --seed 3 | od -c)
[ "$text" = "$(write tp --seed 3 | od -c)" ] || fault "the same seed gives another text"
[ "$text" != "$(write tp --seed 4 | od -c)" ] || fault "another seed gives the same text"
[ "$(write tp --temperature 0 | wc -c)" -eq $((8 + 40 + 1)) ] || fault "generate: another number of bytes"
[ "$(write single --temperature 0 --seed 1 | od -c)" = "$(write single --top-k 1 --seed 2 | od -c)" ] || fault "top-k 1 is not the likeliest"
case $(write single --temperature 0) in "#include"*) ;; *) fault "generate: the prompt is missing" ;; esac

[ "$faults" -eq 0 ] && echo ok
exit $((faults > 0))
