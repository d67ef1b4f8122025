#!/usr/bin/env bash
# Bad input on thread ranks, a run that is interrupted, and files that `gpt generate` cannot read.
. "$CLEAVE_SOURCE/tests/apps/faults.bash"

bad_input "$gpt" train --ranks 2 "${tiny[@]}"
for signal in INT TERM; do
  interrupted $signal 1 "^rank 1: .*interrupted" "$gpt" train --ranks 2 "${tiny[@]}"
done

# Averages are in the weights' places, and gathers under way, when a signal comes during an evaluation.
interrupted TERM 1 "^rank 1: .*interrupted" "$gpt" train --ranks 2 "${tiny[@]}" --mesh dp=2 --plan zero3 --overlap \
  --ema 0.9 --eval-every 1
(
  ulimit -f 1 # blocks of 1 KiB
  fails "safetensors cannot be written: File too large" "$gpt" train --ranks 2 "${tiny[@]}" --checkpoints "$folder/large"
  exit "$faults"
) || faults=$((faults + 1))
[ "$(ls -A "$folder/large")" = "" ] || fault "large: something is left: $(ls -A "$folder/large")"

ranks=1
printf 'not a model' >"$folder/model"
fails "missing does not exist" "$gpt" generate --model "$folder/missing"
fails "model is no complete safetensors file" "$gpt" generate --model "$folder/model"
passes "$gpt" train "${tiny[@]}" --save "$folder/good"
head -c -1 "$folder/good" >"$folder/model"
fails "model is no complete safetensors file" "$gpt" generate --model "$folder/model"
sed 's/\\"layers\\":2/\\"layers\\":1/' "$folder/good" >"$folder/model"
fails "12 tensors that the model lacks" "$gpt" generate --model "$folder/model"

ranks=0
fails "--heads 3" "$gpt" train --heads 7
fails "needs a mesh" "$gpt" plan
finish
