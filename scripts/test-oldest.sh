#!/bin/sh
# The tests that matter, with the lowest versions that pyproject.toml allows: make test-oldest
# uv finds in seconds what goes together with them; pip searches for half an hour.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-oldest
[ -x "$venv/bin/uv" ] || {
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check uv
}
"$venv/bin/python" scripts/oldest.py > "$venv/oldest.txt"
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --constraint "$venv/oldest.txt" -e '.[test]'
# not what measures memory, which the libraries' versions decide
"$venv/bin/pytest" -m "not slow" tests/backbone tests/bank tests/calibration tests/cli tests/inputs tests/metric \
    tests/model tests/scoring tests/attacks "$@"
