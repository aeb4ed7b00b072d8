#!/usr/bin/env bash
# Formats every C++ file in place; with --check only names those that would change.
#   deploy/scripts/format.sh [--check]
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

usage_if_asked "$@"
case "${1:-}" in
  "" | --check) ;;
  *) fail_usage "unknown argument $1" ;;
esac

command -v clang-format >/dev/null || fail "clang-format is missing: run deploy/setup.sh --dev"
folders=(common controller trainer_worker rollout_worker parity deploy tests)
mapfile -t files < <(find "${folders[@]}" \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.def' \) | sort)
if [ "${1:-}" = --check ]; then
  clang-format --dry-run --Werror "${files[@]}" || fail "run deploy/scripts/format.sh"
  say "format: ${#files[@]} files are well formatted"
else
  clang-format -i "${files[@]}"
fi
