#!/usr/bin/env bash
# Layers, file sizes, documentation, formatting, shell syntax and clang-tidy. Every finding is an
# error, and so is a lack of time for what is due: the files of this run's turn, and those that changed
# since the recorded commit as far as they fit into its plan (deploy/scripts/ci_turns.py).
#   deploy/scripts/lint.sh [--tidy-seconds N | --whole]
# --tidy-seconds  after which clang-tidy begins no file (default: no limit)
# --whole         clang-tidy looks at every file, not at this turn's
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
python3 deploy/scripts/check_layers.py
python3 deploy/scripts/check_sizes.py
python3 deploy/scripts/check_docs.py
python3 deploy/scripts/api_docs.py --check
for script in deploy/*.sh deploy/*/*.sh docs/examples/*.sh .ci/run; do bash -n "$script"; done
deploy/scripts/format.sh --check
deploy/scripts/plain_build.sh
python3 deploy/scripts/run_tidy.py --build "$BUILD-plain" --jobs "$(nproc)" "${tidy[@]}"
