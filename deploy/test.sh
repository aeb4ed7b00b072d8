#!/usr/bin/env bash
# Sets up, builds and runs every test.
#   deploy/test.sh [ctest arguments]     for example: deploy/test.sh -R config
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

deploy/setup.sh
deploy/build.sh
deploy/fetch_model.sh
say "tests"
begin=$SECONDS
code=0
ctest --test-dir "$BUILD" --output-on-failure -j "$(nproc)" "$@" || code=$?
say "tests took $(seconds "$begin") s; everything together $(seconds) s"
exit "$code"
