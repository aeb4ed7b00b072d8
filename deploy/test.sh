#!/usr/bin/env bash
# Sets up, builds and runs every test.
#   deploy/test.sh [ctest arguments]     for example: deploy/test.sh -R config
# It succeeds if every test that exists (and that the arguments select) has run and passed, or has
# skipped itself with exit code 77 and a printed reason. At most two failed tests are run a
# second time, each alone; one that then passes is reported as not dependable and gets a row in
# tests/undependable.txt: commit the row and mend its cause. A test that fails again
# has failed, and after three or more failures no test is repeated.
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
