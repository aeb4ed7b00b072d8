#!/usr/bin/env bash
# Sets up, builds and runs every test.
#   deploy/test.sh [ctest arguments]     for example: deploy/test.sh -R config
# It succeeds where every test that exists (and that the arguments choose) has run and passed, or has
# skipped itself with exit code 77, whose reason is printed. At most two tests that fail are run a
# second time, each alone; one that passes then is named as not dependable and gets a row in
# tests/undependable.txt, which is to be committed and whose cause is to be mended. What fails again
# has failed, and of three or more failures none is tried again.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage_if_asked "$@"

in_front deploy/setup.sh
in_front deploy/build.sh
in_front deploy/fetch_model.sh
say "tests"
begin=$SECONDS
code=0
in_front python3 deploy/scripts/test_verdict.py --build "$BUILD" --jobs "$(nproc)" -- "$@" || code=$?
say "tests took $(seconds "$begin") s; everything together $(seconds) s"
exit "$code"
