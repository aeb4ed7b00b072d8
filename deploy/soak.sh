#!/usr/bin/env bash
# A long run of the smallest model with faults at random moments: builds the programs, makes all steps once
# without faults and once with kills and stops of controller, trainer and rollout, and compares the last
# checkpoints, every file.
# Writes memory, descriptors, threads, disk and step time to build/soak/soak.csv, and draws soak.svg of it.
#   deploy/soak.sh [--steps N] [--seed N] [--fault-every N] [--save-every N] [--sample-every N] [--out DIR]
# --steps         of each of the two runs (default 100000: hours, as a step takes 20 to 60 ms on two cores)
# --seed          which faults (default 1)
# --fault-every   steps from one fault to the next, on average (default 500)
# --save-every    steps from one checkpoint to the next, from which a run goes on after a kill (default 200)
# --sample-every  steps from one row of the table to the next (default: a 200th of all)
# --out           folder of the runs, which is emptied first (default build/soak)
# Ends with 1, and says why, where memory, descriptors, threads or the disk grow beyond the bounds of
# deploy/soak/soak.py, or where a file of the last checkpoint differs.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage_if_asked "$@"
split_values "--steps --seed --fault-every --save-every --sample-every --out" "$@"
set -- "${given[@]}"
arguments=("$@")
while (($# > 0)); do
  case "$1" in
    --steps | --seed | --fault-every | --save-every | --sample-every)
      [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || fail_usage "$1 takes a number from 1 on, not \"${2:-}\""
      shift
      ;;
    --out)
      [ -n "${2:-}" ] || fail_usage "--out takes a folder"
      shift
      ;;
    *) fail_usage "unknown argument $1" ;;
  esac
  shift
done
in_front deploy/build.sh tandem-controller tandem-trainer tandem-rollout tandem-launcher tandemctl
exec python3 deploy/soak/soak.py --bin "$BUILD/bin" --out "$BUILD/soak" "${arguments[@]}"
