#!/bin/bash
# Generates the stubs beside proto/nodetriage/v1/health.proto; with --check only compares them with what is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=proto
if [ "${1:-}" = --check ]; then
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi
.venv/bin/python -m grpc_tools.protoc -I proto --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" \
    nodetriage/v1/health.proto
if [ "$out" != proto ]; then
    for stub in "$out"/nodetriage/v1/*; do
        diff -u "proto/nodetriage/v1/$(basename "$stub")" "$stub" || {
            echo "proto: the stubs are not those of health.proto: run make proto" >&2
            exit 1
        }
    done
fi
