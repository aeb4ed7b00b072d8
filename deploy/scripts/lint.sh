#!/usr/bin/env bash
# Formatting and clang-tidy. Every finding is an error, and so is too little time for the files that are due: the
# files of this run's turn, and those that changed since the recorded commit as far as they fit into
# its plan (deploy/scripts/ci_turns.py). What needs no tool but Python and bash (layers, shape, sizes,
# documentation, syntax of shell scripts) is a test of ctest (tests/deploy/scripts).
#   deploy/scripts/lint.sh [--tidy-seconds N | --whole]
# --tidy-seconds  after which clang-tidy starts no further file (default: no limit)
# --whole         clang-tidy checks every file, not only this turn's
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

usage_if_asked "$@"
tidy=()
case "${1:-}" in
  "") ;;
  --tidy-seconds) tidy=(--seconds "${2:?seconds}") ;;
  --tidy-seconds=?*) tidy=(--seconds "${1#*=}") ;;
  --whole) tidy=(--whole) ;;
  *) fail_usage "unknown argument $1" ;;
esac
deploy/scripts/format.sh --check
deploy/scripts/plain_build.sh
python3 deploy/scripts/run_tidy.py --build "$BUILD-plain" --jobs "$(nproc)" "${tidy[@]}"
