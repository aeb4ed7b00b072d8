#!/usr/bin/env bash
# From a fresh clone to a language model that learns to add: set-up, build, model, data, training.
#   deploy/quickstart.sh [--set key=value ...] [--start-paused]
# Every part that is done already is skipped. Ctrl-C stops cleanly; started again, an interrupted
# run resumes from its last checkpoint, and a finished one starts anew.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage_if_asked "$@"
for argument in "$@"; do
  case "$argument" in
    --set | --start-paused | [!-]*=*) ;;
    *) fail_usage "unknown argument $argument" ;;
  esac
done

DATA="$ROOT/data/addition"
PROGRAMS=(tandem-controller tandem-trainer tandem-rollout tandem-parity tandemctl tandem-launcher)

say "quickstart: 1/4 set-up"
deploy/setup.sh
say "quickstart: 2/4 build"
deploy/build.sh "${PROGRAMS[@]}"
say "quickstart: 3/4 model and data"
deploy/fetch_model.sh
if [ ! -f "$DATA/train.jsonl" ] || [ ! -f "$DATA/val.jsonl" ]; then
  say "data: additions of 0-20, a fifth of the pairs held out, into ${DATA#"$ROOT"/}"
  rm -rf "$DATA.new"
  "$BUILD/bin/tandemctl" data make addition "$DATA.new"
  rm -rf "$DATA"
  mv "$DATA.new" "$DATA"
fi
say "quickstart: 4/4 training (preparation took $(seconds) s)"
exec deploy/launch.sh configs/quickstart.yaml "$@"
