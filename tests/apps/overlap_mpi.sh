#!/usr/bin/env bash
# gpt train --overlap on processes.
. "$CLEAVE_SOURCE/tests/apps/overlap.bash"
same_everywhere processes
finish
