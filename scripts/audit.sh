#!/bin/sh
# Known vulnerabilities of all that is installed for development (requirements-dev.lock): make audit
# pip-audit asks a service on the network. If that cannot be reached nothing is known, which is said and is no failure.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-audit
[ -x "$venv/bin/pip-audit" ] || {
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check pip-audit
}
report=$(mktemp)
trap 'rm -f "$report"' EXIT
status=0
"$venv/bin/pip-audit" --progress-spinner off --disable-pip --no-deps --requirement requirements-dev.lock \
    > "$report" 2>&1 || status=$?
if grep -q -i -E "vulnerabilit" "$report"; then
    cat "$report"
    exit "$status"
fi
echo "audit: the service that knows of vulnerabilities cannot be reached, so nothing is known ($(tail -1 "$report"))"
