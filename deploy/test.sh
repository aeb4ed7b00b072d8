#!/usr/bin/env bash
# Sets up, builds and runs every test.
#   deploy/test.sh [ctest arguments]     for example: deploy/test.sh -R config
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage_if_asked "$@"

deploy/setup.sh
deploy/build.sh
deploy/fetch_model.sh
say "tests"
begin=$SECONDS
code=0
log="$BUILD/Testing/last-run.log"
ctest --test-dir "$BUILD" --output-on-failure --output-log "$log" -j "$(nproc)" "$@" || code=$?
while read -r line; do
  note "test skipped: $line"
done < <(grep -E '^\s*[0-9]+ - .*\((Skipped|Disabled)\)' "$log" || true)
say "tests took $(seconds "$begin") s; everything together $(seconds) s"
exit "$code"
