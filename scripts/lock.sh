#!/bin/sh
# Pin all that development needs, with hashes, in requirements-dev.lock: make lock
# The file names versions and hashes only, no registry: any index that has the same files will do.
#     pip install --require-hashes -r requirements-dev.lock && pip install --no-deps -e .
# uv resolves in seconds what takes pip-compile half an hour, with so many extras.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-lock
[ -x "$venv/bin/uv" ] || {
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check uv
}
"$venv/bin/uv" pip compile --quiet --extra dev --generate-hashes --no-header --no-annotate --no-emit-package mhpatchcore \
    --python "$venv/bin/python" --output-file "$venv/requirements-dev.lock" pyproject.toml
{
    echo "# made by scripts/lock.sh from pyproject.toml; do not edit"
    grep -v -E '^# ' "$venv/requirements-dev.lock"
} > requirements-dev.lock
