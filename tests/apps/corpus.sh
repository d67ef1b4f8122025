#!/usr/bin/env bash
# From text to a trained model: the same batches on any number of ranks, over several epochs, also where a run went on in
# the middle of one on another number; data that were replaced meanwhile are refused.
source "$CLEAVE_SOURCE/tests/apps/resume.bash"
launch() { "$gpt" "${@:2:1}" --ranks "$1" "${@:3}"; }
"$gpt" tokenize --data "$folder/text" --out "$folder/d/t.bin" --train 300 >"$folder/tokenize.out" 2>&1 &&
  fault "tokens were written into a folder that is not there"
has "$folder/tokenize.out" 'd/t.bin cannot be written'
mkdir "$folder/d"
for part in a b; do # two files of one vocabulary, 3000 bytes each
  head -c 3000 "$CLEAVE_SOURCE/apps/gpt/tokenize.cpp" >"$folder/$part"
  "$gpt" tokenize --data "$folder/$part" --out "$folder/d/$part.bin" --train 320 --threads 2 >"$folder/tokenize.out" 2>&1 ||
    fault "gpt tokenize: exit code $?"
done
common=(--layers 1 --dim 12 --heads 2 --seq 16 --batch 7 --steps 40 --lr 0.01 --dropout 0.1 --dtype f64
  --data "$folder/d" --check-data --checkpoint-every 7) # an epoch is some 30 steps
must_run whole 1
has "$folder/whole.out" '^data: .*/d \(2 files, .* tokens'
for ranks in 2 3 4; do
  must_run "whole$ranks" "$ranks"
  same_numbers whole "whole$ranks" 10
done
must_run moved 3 --stop-at 13
must_run moved 1 --resume auto --stop-at 29
must_run moved 4 --mesh dp=2,tp=2 --resume auto --stop-at 35
must_run moved 2 --resume auto
same_numbers whole moved 10
[ "$("$gpt" generate --model "$folder/whole.model" --prompt '#include' --tokens 0)" = '#include' ] ||
  fault "the tokenizer beside the tokens is not the model's"

must_run replaced 2 --stop-at 13
tr a-z b-za <"$folder/b" >"$folder/c"
"$gpt" tokenize --data "$folder/c" --out "$folder/d/b.bin" --tokenizer "$folder/d/b.json" >/dev/null || fault "gpt tokenize"
run replaced 2 --resume auto && fault "a run went on with other data"
has "$folder/replaced.out" "rank [01]: .*other data than .*/d"
printf '\xff' | dd of="$folder/d/a.bin" bs=1 seek=100 conv=notrunc 2>/dev/null
run damaged 2 && fault "damaged tokens were taken"
has "$folder/damaged.out" "rank [01]: .*a.bin is damaged"

finish
