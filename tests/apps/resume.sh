#!/usr/bin/env bash
# Runs that end and go on, on thread ranks: bit-equal on the same mesh, the same batches and numbers on another.
source "$CLEAVE_SOURCE/tests/apps/resume.bash"
launch() { "$gpt" "${@:2:1}" --ranks "$1" "${@:3}"; }

for plan in "1 single" "2 tp" "2 zero3" "4 zero3_tp"; do
  read -r ranks name <<<"$plan"
  place=(--plan "$name")
  case $name in
  tp) place+=(--mesh tp=2) ;;
  zero3) place+=(--mesh dp=2) ;;
  zero3_tp) place+=(--mesh dp=2,tp=2) ;;
  esac
  must_run "whole_$name" "$ranks" "${place[@]}"
  must_run "part_$name" "$ranks" "${place[@]}" --stop-at 7
  has "$folder/part_$name.out" "stopped behind step 7"
  must_run "part_$name" "$ranks" "${place[@]}" --resume auto
  has "$folder/part_$name.out" "goes on behind step 7"
  same_numbers "whole_$name" "part_$name"
  same_model "whole_$name" "part_$name"
done
same_numbers whole_single whole_zero3_tp 10

# Another mesh: from 4 ranks to 1, from 1 to 3, each in the same log.
must_run moved 4 --mesh dp=2,tp=2 --plan zero3_tp --stop-at 5
must_run moved 1 --resume auto --stop-at 9
must_run moved 3 --mesh dp=3 --plan zero2 --resume auto
same_numbers whole_single moved 10

# Steps of another size are told, from checkpoints that say theirs.
must_run wider 1 --stop-at 4
must_run wider 1 --resume auto --batch 8 --stop-at 5
has "$folder/wider.out" "a step has 8 windows from here on, 6 before"

# In parts, with what else a step may keep.
extras=(--accumulate 2 --recompute 'blocks.*' --loss-chunk 7 --ema 0.9)
must_run whole_extras 2 --mesh dp=2 "${extras[@]}"
must_run part_extras 2 --mesh dp=2 "${extras[@]}" --stop-at 6 --no-background
must_run part_extras 2 --mesh dp=2 "${extras[@]}" --resume auto
same_numbers whole_extras part_extras
same_model whole_extras part_extras

# Averages of f32 masters, which lie split over the ranks.
averaged=(--mesh dp=2 --plan zero1 --dtype bf16 --ema 0.99)
must_run whole_averaged 2 "${averaged[@]}"
must_run part_averaged 2 "${averaged[@]}" --stop-at 6
must_run part_averaged 2 "${averaged[@]}" --resume auto
same_numbers whole_averaged part_averaged
same_model whole_averaged part_averaged

# What does not fit is an error, and loses nothing.
run part_tp 2 --mesh tp=2 --plan tp --resume auto --dim 24 && fault "a checkpoint of another model was taken"
has "$folder/part_tp.out" "model"
run empty 1 --resume "$folder/nothing" && fault "a checkpoint that does not exist was taken"
must_run empty 1 --resume auto
same_model whole_single empty

# Nothing that a run has left is overwritten or taken by mistake.
run part_tp 2 --mesh tp=2 --plan tp && fault "a new run wrote into the folder of another"
has "$folder/part_tp.out" "has checkpoints already; go on from them with --resume auto"
run part_tp 2 --mesh tp=2 --plan tp --resume auto --dtype f32 && fault "a checkpoint of another dtype was taken"
has "$folder/part_tp.out" "was trained with --dtype f64, not f32"
must_run older 1 --stop-at 8
printf X | dd of="$folder/older/step-00000008/model.safetensors" bs=1 seek=9000 conv=notrunc 2>/dev/null
must_run older 1 --resume auto --stop-at 9 --max-file-bytes 9000
has "$folder/older.out" "passed by step-00000008: .* is damaged"
has "$folder/older.out" "goes on behind step 4"
has "$folder/older.out" "step-00000008 is of another course: now step-00000008.abandoned"
[ -e "$folder/older/step-00000009/model.safetensors.index.json" ] || fault "older: no numbered files"
run older 1 --resume "$folder/older/step-00000004" --log "$folder/no/log" && fault "a log that cannot be written is no error"
[ -e "$folder/older/step-00000009" ] || fault "older: a run that could not begin set a checkpoint aside"
must_run older 2 --resume "$folder/older"
has "$folder/older.out" "goes on behind step 9"
same_numbers whole_single older 10
must_run older 1 --resume auto
has "$folder/older.out" "all 12 steps were done before"
same_numbers whole_single older 10
for file in "$folder"/older/step-*/model*.safetensors; do printf X | dd of="$file" bs=1 seek=9000 conv=notrunc 2>/dev/null; done
run older 1 --resume auto && fault "a run began again although it had left checkpoints"
has "$folder/older.out" "no checkpoint in .* can be loaded"
run again 1 --restarts 3 --lr 1e30 --warmup 0 && fault "a run without numbers came to an end"
has "$folder/again.out" "left no new checkpoint and would fail again"

# Started again by itself after it was killed.
long=(--steps 60 --dim 48 --seq 48 --batch 12)
must_run whole_long 2 --mesh tp=2 --plan tp "${long[@]}"
run restarted 2 --mesh tp=2 --plan tp "${long[@]}" --restarts 2 &
job=$!
for ((i = 0; i < 600; ++i)); do
  [ -e "$folder/restarted/latest" ] && break
  sleep 0.05
done
kill -9 "$(pgrep -f "checkpoints $folder/restarted " | tail -n 1)" || fault "the run had ended before it was killed"
wait "$job" || { fault "restarted: exit code $?" && cat "$folder/restarted.out"; }
has "$folder/restarted.out" "was killed by signal 9; restart 1 of 2"
same_numbers whole_long restarted
same_model whole_long restarted

finish
