#!/usr/bin/env bash
# Every ready plan on 2 and 4 processes gives the loss and gradient norm of one device in f32, on every size.
. "$CLEAVE_SOURCE/tests/apps/parity.bash"
for placement in "${placements[@]}"; do
  for size in "${sizes[@]}"; do compare processes f32 "$placement" "$size"; done
done
finish
