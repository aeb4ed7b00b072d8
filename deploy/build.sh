#!/usr/bin/env bash
# Configures and builds into build/ (or $TANDEM_BUILD_DIR); programs land in build/bin.
#   deploy/build.sh [TARGET ...]     without a target: everything, tests included
# Environment: TANDEM_JOBS = compilers at once (default: by cores and memory).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage_if_asked "$@"
for target in "$@"; do
  [[ "$target" != -* ]] || fail_usage "unknown argument $target"
done

if [ ! -f "$BUILD/build.ninja" ]; then
  say "configuring in $BUILD"
  cmake -S "$ROOT" -B "$BUILD" -G Ninja
fi
say "building ${*:-everything} with $(jobs_for_build) jobs"
NINJA_STATUS="[%f/%t %es] " ninja -C "$BUILD" -j "$(jobs_for_build)" "$@"
say "the build is complete ($(seconds) s)"
