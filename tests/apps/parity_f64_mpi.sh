#!/usr/bin/env bash
# Every ready plan on 2 and 4 processes gives the numbers of one device in f64, on every size.
. "$CLEAVE_SOURCE/tests/apps/parity.bash"
for placement in "${placements[@]}"; do
  for size in "${sizes[@]}"; do compare processes f64 "$placement" "$size"; done
done
finish
