#!/bin/sh
# Build sdist and wheel, check them, install the wheel into clean environments outside of the tree, and try it: make dist
# It prints how large each installation is, in MB. DEMO=no leaves the demo out.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf dist build
"$python" -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet --disable-pip-version-check build twine
"$work/tools/bin/python" -m build --outdir dist . > "$work/build.log" 2>&1 || { tail -20 "$work/build.log"; exit 1; }
"$work/tools/bin/twine" check --strict dist/*
wheel=$(ls "$PWD"/dist/*.whl)

size() { du -sm --exclude=pip --exclude='pip-*' --exclude=setuptools --exclude='setuptools-*' "$1"/lib/python*/site-packages | cut -f1; }

"$python" -m venv "$work/whole"
"$work/whole/bin/pip" install --quiet --disable-pip-version-check "$wheel"
echo "installed, whole: $(size "$work/whole") MB"
"$python" -m venv "$work/score"
"$work/score/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps "$wheel"
"$work/score/bin/pip" install --quiet --disable-pip-version-check --no-compile -r packaging/requirements-score.txt 2>&1 |
    grep -v "^mhpatchcore .* requires \|^ERROR: pip's dependency resolver" || true
echo "installed, to score alone: $(size "$work/score") MB"

cp scripts/smoke.py "$work"
cd "$work"
[ "${DEMO:-yes}" = no ] || "$work/whole/bin/mhpatchcore" demo demo
"$work/whole/bin/python" smoke.py fit part.mhpc
"$work/score/bin/python" smoke.py score part.mhpc
"$work/score/bin/mhpatchcore" score part.mhpc parts/0.png --json > scored.json
grep -q '"verdict"' scored.json
echo "the wheel fits, saves, loads and scores"
