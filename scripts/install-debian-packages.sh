#!/bin/sh
# What the tests use beyond Python, where it can be had: as root, with apt. Without it those tests are skipped.
# strace: shows that nothing leaves the machine (tests/trust/test_privacy.py)
# gcc: faults at every write (benchmarks/stress/shim.c)
# libonnxruntime-dev: the sample in C++ that runs an exported file (from Debian 13 on)
# chromium: the page as somebody sees it (tests/deploy/test_page.py)
# mosquitto: a broker for the messages of `watch` (tests/deploy/test_watch_sending.py)
set -eu
missing=""
command -v strace > /dev/null || missing="$missing strace"
command -v cc > /dev/null || missing="$missing gcc libc6-dev"
[ -e /usr/include/onnxruntime ] || ! apt-cache show libonnxruntime-dev > /dev/null 2>&1 ||
    missing="$missing g++ libonnxruntime-dev"
command -v chromium > /dev/null || missing="$missing chromium"
[ -x /usr/sbin/mosquitto ] || missing="$missing mosquitto"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "not installed, so some tests are skipped:$missing" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
# a machine without its package mirror can run all other tests
apt-get install -qq -y --no-install-recommends $missing > /dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends $missing > /dev/null; } ||
    echo "could not be installed, so some tests are skipped:$missing" >&2
