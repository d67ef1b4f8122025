#!/usr/bin/env bash
# Every ready plan on 2 and 4 thread ranks gives the numbers of one device: every size and dtype.
. "$CLEAVE_SOURCE/tests/apps/parity.bash"
for dtype in f64 f32 bf16 f16; do
  for placement in "${placements[@]}"; do
    for size in "${sizes[@]}"; do compare threads "$dtype" "$placement" "$size"; done
  done
done
finish
