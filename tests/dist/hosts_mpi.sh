#!/usr/bin/env bash
# The collectives under mpirun with ranks that are told to be on several hosts: what is chosen, and that it is right.
set -u
faults=0

# check RANKS HOSTS
check() {
  out=$(CLEAVE_HOSTS=$2 timeout 100 "$CLEAVE_MPIRUN" -n "$1" "$CLEAVE_BIN/test_mpi" \
    --source-file='*tests/dist/communicator_mpi.cpp' 2>&1) && return
  echo "$1 ranks on hosts $2:"
  echo "$out"
  faults=$((faults + 1))
}

check 2 0,1
check 4 0,0,1,1
check 4 7,8,7,8
check 3 1,0,0

out=$(CLEAVE_HOSTS=0 timeout 100 "$CLEAVE_MPIRUN" -n 2 "$CLEAVE_BIN/test_mpi" 2>&1)
if ! grep -q 'CLEAVE_HOSTS must be 2 numbers' <<<"$out"; then
  echo "a map of one host for two ranks: $out"
  faults=$((faults + 1))
fi

[ "$faults" -eq 0 ] && echo ok
exit $((faults > 0))
