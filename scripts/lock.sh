#!/bin/bash
# Brings requirements.lock up to pyproject.toml: one lock for every platform, with hashes, naming no index.
# Versions already in it stay unless a bound or --upgrade asks otherwise.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v uv >/dev/null; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check uv
    PATH=$PWD/.venv/bin:$PATH
fi
uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
    --extra analysis --group dev --output-file requirements.lock "$@" pyproject.toml
