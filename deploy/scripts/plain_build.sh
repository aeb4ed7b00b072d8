#!/usr/bin/env bash
# Configures a build of single files in build-plain, without unity files and precompiled headers, and
# generates its headers; nothing is compiled. clang-tidy and check_includes.py read its compile commands.
#   deploy/scripts/plain_build.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

usage_if_asked "$@"
[ "$#" = 0 ] || fail_usage "unknown argument $1"

plain="$ROOT/build-plain"
cmake -S "$ROOT" -B "$plain" -G Ninja -DCMAKE_UNITY_BUILD=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
  -DTANDEM_PRECOMPILED_TESTS=OFF >/dev/null || fail "the build in $plain cannot be configured"
# protoc's and other generators' output: whatever custom commands make that is to be included.
mapfile -t headers < <(ninja -C "$plain" -t targets rule CUSTOM_COMMAND | grep -E '\.(h|hpp|inc)$' || true)
((${#headers[@]} == 0)) || ninja -C "$plain" -j "$(jobs_for_build)" "${headers[@]}" >/dev/null \
  || fail "the headers that the build generates could not be made"
