#!/usr/bin/env bash
# From a fresh clone to a language model that learns to add: set-up, build, model, data, training.
#   deploy/quickstart.sh [--steps N] [--set key=value ...] [--start-paused]
# --steps N       trains N steps; 50 give the whole curve. Without it the first steps are measured, and as
#                 many are made as fit into 5 minutes with both validations: 50 at most, 8 at least.
# --start-paused  trains only what `tandemctl run` asks for
# Parts that are done already are skipped, and each prints how much time is left. Ctrl-C stops cleanly.
# Started again, an interrupted run continues from its last checkpoint. A finished run starts again
# from the first step; but if --steps asks for more steps than it has made, it makes the missing ones.
# Environment: TANDEM_HOME and TANDEM_BUILD_DIR, folders for the output if the checkout must not
# be written (docs/start/quickstart.md); TANDEM_JOBS, compilers at once; TANDEM_PROGRESS_SECONDS between lines
# about progress where stdout is not a terminal (15).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

CONFIG="$ROOT/configs/quickstart.yaml"
MINUTES=5
FEWEST=8
PROGRAMS=(tandem-controller tandem-trainer tandem-rollout tandem-parity tandemctl tandem-launcher tandem-agent)

usage_if_asked "$@"
split_values "--steps --set" "$@"
set -- "${given[@]}"
steps="" paused="" wanted=""
settings=()
while (($# > 0)); do
  case "$1" in
    --steps)
      [[ "${2:-}" =~ ^[1-9][0-9]{0,8}$ ]] || fail_usage "--steps takes a number from 1 on, not \"${2:-}\""
      steps="$2"
      shift
      ;;
    --start-paused) paused=yes settings+=("$1") ;;
    --set) [[ "${2:-}" == [!-]*=* ]] || fail_usage "--set takes key=value, not \"${2:-}\"" ;;
    [!-]*=*)
      wanted+=" $1 "
      settings+=(--set "$1")
      ;;
    *) fail_usage "unknown argument $1" ;;
  esac
  shift
done

is_set() { [[ "$wanted" == *" $1="* ]]; }
of_config() { sed -nE "s/^ *$1: *([^ #]+).*/\1/p" "$CONFIG"; }

# How long the run is: what was asked for, or what 5 minutes allow.
choose_length() {
  local all rise
  all="$(of_config total_training_steps)"
  if [ -n "$steps" ]; then
    settings+=(--set "trainer.total_training_steps=$steps")
    ((steps < all)) && ! is_set trainer.expected_val_rise || return 0
    rise="$(awk "BEGIN {print $(of_config expected_val_rise) * $steps / $all}")"
    settings+=(--set "trainer.expected_val_rise=$rise")
  elif [ -z "$paused" ] && ! is_set trainer.total_training_steps && ! is_set trainer.max_seconds; then
    say "training: after its second step it says how many end within $MINUTES min ($FEWEST at least);
    deploy/quickstart.sh --steps $all makes the whole curve"
    settings+=(--set "trainer.max_seconds=$((60 * MINUTES))" --set "trainer.min_training_steps=$FEWEST")
    # A validation of 8 samples each takes as long as three steps, twice.
    is_set rollout.val_kwargs.n || settings+=(--set rollout.val_kwargs.n=4)
  fi
}

# Checks first what would make a later part fail.
check_before() {
  local run_dir="$HOME_DIR/runs/tandem/quickstart" need=$RUN_MIB
  need_home
  is_set cluster.run_dir || check_run_dir "$run_dir" deploy/quickstart.sh
  check_processor
  [ -f "$VENV/tandem-wheels" ] || need=$((need + TORCH_MIB))
  if [ ! -x "$BUILD/bin/tandem-launcher" ]; then
    need=$((need + BUILD_MIB))
    need_space "$BUILD" "$BUILD_MIB" "the build" # which may be on another disk
  fi
  [ -d "$HOME_DIR/models" ] || need=$((need + MODEL_MIB))
  need_space "$HOME_DIR" "$need" "the quickstart"
}

part() {
  export TANDEM_PART="$1"
  say "quickstart: $1"
}

make_data() {
  local data="$HOME_DIR/data/addition"
  [ ! -f "$data/train.jsonl" ] || [ ! -f "$data/val.jsonl" ] || return 0
  say "data: additions of 0-20, a fifth of the pairs held out, into $(short "$data")"
  rm -rf "$data.new"
  "$BUILD/bin/tandemctl" data make addition "$data.new"
  rm -rf "$data"
  mv "$data.new" "$data"
}

source "$ROOT/deploy/package/run.sh"
run_package_if_there "${given[@]}"
check_before
part "1/5 set-up"
in_front deploy/setup.sh
part "2/5 build"
in_front deploy/build.sh "${PROGRAMS[@]}"
part "3/5 model"
in_front deploy/fetch_model.sh
part "4/5 data"
in_front make_data
part "5/5 training"
say "preparation took $(seconds) s"
choose_length
cd "$HOME_DIR" # the config names models, data and runs from where it is started
unset TANDEM_PART
exec "$ROOT/deploy/launch.sh" "$CONFIG" "${settings[@]}"
