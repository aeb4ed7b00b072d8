#!/usr/bin/env bash
# Tries what docs/reference/reliability.md promises: every role, fault and phase of tests/faults/table.txt on real runs of
# a tiny model, and kills of random processes at random moments. Each run must end with the whole state of an undisturbed
# one, bit for bit, or as the table says.
#   deploy/faults.sh [--only PATTERN,...] [--seeds N] [--first-seed N] [--jobs N] [--pause-seconds N] [--out FILE]
#                     [--list]
# --only    cells role/fault/phase that match a shell pattern, as 'trainer/*/save'; a random kill again by seed/N
# --seeds   random kills (100, or none with --only)
# --jobs    runs at once (2)
# --pause-seconds  of the cells of `pause`, those of the reward service excepted (30, or 6 with --only)
# --out     the page of results (docs/reference/fault_matrix.md, where everything is run); what was not tried keeps what it says
# --list    all cells and what is expected of each
# The whole takes less than an hour on two idle cores. Cells that need root (a small disk, a network namespace, a memory cgroup) are
# skipped without it, and the result says so. Exit code 0: all as expected; 1: the last lines name what was not, and the folders of
# those runs, which are kept.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage_if_asked "$@"
split_values "--only --seeds --first-seed --jobs --pause-seconds --out" "$@"
set -- "${given[@]}"
arguments=("$@") out=(--out "$ROOT/docs/reference/fault_matrix.md")
while (($# > 0)); do
  case "$1" in
    --list) exec python3 tests/faults/faults.py --list ;;
    --seeds | --first-seed | --jobs | --pause-seconds)
      [[ "${2:-}" =~ ^[0-9]+$ ]] || fail_usage "$1 takes a number, not \"${2:-}\""
      shift
      ;;
    --only | --out)
      [ -n "${2:-}" ] || fail_usage "$1 takes a value"
      out=()
      shift
      ;;
    *) fail_usage "unknown argument $1" ;;
  esac
  shift
done
in_front deploy/build.sh tandem-controller tandem-trainer tandem-rollout tandem-launcher tandemctl tandem-tiny-model \
  tandem-letter-rewards tandem_faults
in_front python3 tests/faults/faults.py --build "$BUILD" "${out[@]}" "${arguments[@]}"
