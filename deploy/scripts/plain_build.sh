#!/usr/bin/env bash
# Configures a build of single files, without unity files and precompiled headers, in build-plain (or
# $TANDEM_BUILD_DIR-plain) and generates its headers; nothing is compiled. clang-tidy and
# check_includes.py read its compile commands.
#   deploy/scripts/plain_build.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
source "$ROOT/deploy/shell/build_folder.sh"

usage_if_asked "$@"
[ "$#" = 0 ] || fail_usage "unknown argument $1"

plain="$BUILD-plain"
configure_build plain "$plain" >/dev/null || fail "the build in $plain cannot be configured"
# protoc's and other generators' output: whatever custom commands make that is to be included.
mapfile -t headers < <(ninja -C "$plain" -t targets rule CUSTOM_COMMAND | grep -E '\.(h|hpp|inc)$' || true)
((${#headers[@]} == 0)) || ninja -C "$plain" -j "$(jobs_for_build)" "${headers[@]}" >/dev/null \
  || fail "the headers that the build generates could not be made"
