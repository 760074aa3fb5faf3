#!/bin/bash
# Makes .venv hold exactly what requirements.lock names, plus this project in editable form. Quick when it already does.
# PYTHON=... chooses the interpreter; otherwise the first one of version 3.11 or newer is taken.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stamp=.venv/nodetriage.stamp
wanted=$(sha256sum requirements.lock pyproject.toml scripts/setup.sh)
if [ -x .venv/bin/python ] && [ "$(cat $stamp 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
say() { echo "setup: $*" >&2; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
python=
for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13 /usr/bin/python3}; do
    if new_enough "$candidate"; then python=$(command -v "$candidate") && break; fi
done
[ -n "$python" ] || { say "needs Python 3.11 or newer (Debian: apt-get install python3)"; exit 1; }

# Debian's python3 comes without ensurepip; uv does not need it.
if ! command -v uv >/dev/null && ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    scripts/debian-packages.sh --required - <<<"python3-venv"
fi

if ! .venv/bin/python -c '' 2>/dev/null; then
    say "creates .venv with $python"
    rm -rf .venv
    if command -v uv >/dev/null; then uv venv --quiet --python "$python" .venv; else "$python" -m venv .venv; fi
fi
say "installs what requirements.lock names into .venv"
if command -v uv >/dev/null; then
    uv pip sync --quiet --python .venv/bin/python --require-hashes requirements.lock
    uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
else
    .venv/bin/python -m pip --version >/dev/null 2>&1 || .venv/bin/python -m ensurepip >/dev/null
    pip=(.venv/bin/python -m pip --disable-pip-version-check --no-input install --quiet)
    "${pip[@]}" --no-deps --require-hashes --requirement requirements.lock
    "${pip[@]}" --no-deps --no-build-isolation --editable .
fi
echo "$wanted" >$stamp
say "done"
