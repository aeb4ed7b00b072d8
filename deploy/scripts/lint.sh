#!/usr/bin/env bash
# Layers, file sizes, documentation, formatting, shell syntax and clang-tidy. Every finding is an
# error.
#   deploy/scripts/lint.sh [--tidy-seconds N]     clang-tidy gets N seconds in all
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

usage_if_asked "$@"
tidy_seconds=100000
case "${1:-}" in
  "") ;;
  --tidy-seconds) tidy_seconds="${2:?seconds}" ;;
  *) fail_usage "unknown argument $1" ;;
esac
python3 deploy/scripts/check_layers.py
python3 deploy/scripts/check_sizes.py
python3 deploy/scripts/check_docs.py
python3 deploy/scripts/api_docs.py --check
for script in deploy/*.sh deploy/scripts/*.sh docs/examples/*.sh .ci/run; do bash -n "$script"; done
deploy/scripts/format.sh --check
[ -f "$BUILD/compile_commands.json" ] || fail "clang-tidy needs a build: run deploy/build.sh first"
python3 deploy/scripts/run_tidy.py --build "$BUILD" --jobs "$(nproc)" --seconds "$tidy_seconds"
