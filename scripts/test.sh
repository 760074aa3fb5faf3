#!/bin/bash
# test.sh [PYTEST'S ARGUMENTS]: the tests. Without arguments in two runs side by side: the tests of real parts mostly wait
# (for Slurm, machines, disks, the kernel's log), and the others need no such thing, so neither is in the other's way.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pytest=(.venv/bin/python -m pytest)
[ $# = 0 ] || exec "${pytest[@]}" "$@"

real=(tests/agent tests/bmc tests/e2e tests/slurm tests/systemd)
output=$(mktemp)
"${pytest[@]}" "${real[@]/#/--ignore=}" >"$output" 2>&1 &
others=$!
trap 'kill "$others" 2>/dev/null; rm -f "$output"' EXIT
"${pytest[@]}" "${real[@]}"
failed=$?
wait "$others" || failed=$?
cat "$output"
exit "$failed"
