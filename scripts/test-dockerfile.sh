#!/bin/sh
# Does the Dockerfile still work? With Docker it is built. Without, its COPY and pip steps are done in a temporary folder,
# its CMD is started there with a small model, and its HEALTHCHECK is asked.
set -eu
cd "$(dirname "$0")/.."
if docker info > /dev/null 2>&1; then
    docker build --tag mhpatchcore-test .
    exec docker run --rm mhpatchcore-test --version
fi
port=${PORT:-18080}
folder=$(mktemp -d)
server=""
end() {
    [ -z "$server" ] || kill "$server" 2> /dev/null || true
    rm -rf "$folder"
}
trap end EXIT
echo "there is no Docker: its steps are done in $folder"
mkdir "$folder/models" "$folder/src"
(umask 077 && head -c 24 /dev/urandom | base64 > "$folder/token")

# what is copied is all that the build gets
sed -n 's/^COPY \([^-].*\) \.[^ ]*$/\1/p' Dockerfile | tr ' ' '\n' | while read -r path; do
    cp -r "$path" "$folder/src/"
done
sed -n 's/^RUN \(python -m venv .*\)/\1/p; s/^RUN \(.*pip install .*\)/\1/p' Dockerfile |
    sed "s#^python #${PYTHON:-python3} #; s#/opt/mhpatchcore#$folder/venv#g" > "$folder/steps"
[ "$(wc -l < "$folder/steps")" = 2 ] || { echo "the RUN steps are not those that this script knows" >&2; exit 1; }
(cd "$folder/src" && sh -eu "$folder/steps")

cd /  # so that nothing of this tree is found
python="$folder/venv/bin/python"
"$python" - "$folder/models/vial.mhpc" << 'PROGRAM'
import sys

from mhpatchcore import Config, Detector
from mhpatchcore.demo.dataset import vial_image

images = [vial_image(seed, pixels=64)[0] for seed in range(8)]
Detector.fit(images, Config(sizes=96, K=200)).save(sys.argv[1])
PROGRAM
dockerfile=$OLDPWD/Dockerfile
arguments=$(sed -n 's/^CMD \[\(.*\)\]$/\1/p' "$dockerfile" | tr -d '",' |
    sed "s#/models#$folder/models#; s#/run/secrets/token#$folder/token#; s#0.0.0.0#127.0.0.1#; s#8080#$port#")
# shellcheck disable=SC2086 # words
"$folder/venv/bin/mhpatchcore" $arguments &
server=$!
health=$(sed -n 's/^ *CMD python -c "\(.*\)"$/\1/p' "$dockerfile" | sed "s/8080/$port/")
for _ in $(seq 60); do
    if "$python" -c "$health" 2> /dev/null; then
        echo "the service is ready"
        exit 0
    fi
    kill -0 "$server" 2> /dev/null || { echo "the service has ended" >&2; exit 1; }
    sleep 1
done
echo "the service did not become ready" >&2
exit 1
