#!/bin/sh
# Known vulnerabilities of all that is installed for development (requirements-dev.lock): make audit
set -eu
cd "$(dirname "$0")/.."
venv=.venv-audit
[ -x "$venv/bin/pip-audit" ] || {
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check pip-audit
}
"$venv/bin/python" scripts/audit.py "$venv/bin/pip-audit" requirements-dev.lock
