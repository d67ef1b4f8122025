#!/usr/bin/env bash
# gpt train --overlap on thread ranks.
. "$CLEAVE_SOURCE/tests/apps/overlap.bash"
same_everywhere threads
finish
