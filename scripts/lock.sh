#!/bin/sh
# Pin all that development needs, with hashes, in requirements-dev.lock: make lock
# The file names versions and hashes only, no registry: any index that has the same files will do.
#     pip install --require-hashes -r requirements-dev.lock && pip install --no-deps -e .
set -eu
cd "$(dirname "$0")/.."
venv=.venv-lock
[ -x "$venv/bin/pip-compile" ] || {
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check pip-tools
}
"$venv/bin/pip-compile" --quiet --extra dev --generate-hashes --allow-unsafe --strip-extras --no-header \
    --no-annotate --no-emit-options --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
    --output-file "$venv/requirements-dev.lock" pyproject.toml
# the project itself comes in through its own extras
{
    echo "# made by scripts/lock.sh from pyproject.toml; do not edit"
    grep -v -E '^(# |mhpatchcore @ )' "$venv/requirements-dev.lock"
} > requirements-dev.lock
