#!/bin/sh
# What is installed with the package, as a CycloneDX bill of materials: make sbom writes dist/sbom.json
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet --disable-pip-version-check cyclonedx-bom
"$python" -m venv --without-pip "$work/installed"
"$work/tools/bin/pip" --python "$work/installed/bin/python" install --quiet --disable-pip-version-check .
mkdir -p dist
"$work/tools/bin/cyclonedx-py" environment --pyproject pyproject.toml --output-reproducible --output-format JSON \
    --output-file dist/sbom.json "$work/installed/bin/python"
echo "dist/sbom.json"
