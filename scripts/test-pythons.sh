#!/bin/sh
# The tests with every supported Python that is found here, also those of pyenv: make test-pythons
set -eu
cd "$(dirname "$0")/.."
tested=""
for version in ${PYTHONS:-3.11 3.12 3.13}; do
    python=""
    for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version"*/bin/python; do
        if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2> /dev/null; then
            python=$candidate
            break
        fi
    done
    if [ -z "$python" ]; then
        echo "Python $version: not found here"
        continue
    fi
    venv=.venv-$version
    [ -d "$venv" ] || "$python" -m venv "$venv"
    scripts/constraints.sh > "$venv/constraints.txt"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --constraint "$venv/constraints.txt" -e '.[test]'
    echo "Python $version ($python)"
    "$venv/bin/pytest" -m "not slow" tests "$@"
    tested="$tested $version"
done
echo "tested:${tested:- none}"
