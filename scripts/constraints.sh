#!/bin/sh
# The versions of requirements-dev.lock without their hashes, as constraints for pip, which would search for others.
sed -n 's/^\([a-z0-9][^ ]*==[^ ]*\).*/\1/p' "$(dirname "$0")/../requirements-dev.lock"
