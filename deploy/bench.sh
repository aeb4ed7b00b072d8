#!/usr/bin/env bash
# Builds and runs the benchmarks of tests/bench and whole GRPO steps of configs/bench.yaml, prints
# their tables with machine, instruction set and commit, then ratios with their targets, and
# writes all figures to build/bench/*.json. Nothing is asserted. docs/reference/benchmarks.md explains every row.
#   deploy/bench.sh [--runs N] [--only ops,comm,sync,generation,train,grpo,load] [--model DIR] [--peers [DIR]]
#   deploy/bench.sh --only build [--targets quickstart|all] [--no-tests] ...
#   deploy/bench.sh --only hosts [--mib N] [--gbit N] [--model DIR]
# --runs   repetitions, of which the best counts (default 3)
# --peers  also runs the scripts of DIR (default ../shared/peers) for the ratios, in
#          about 15 minutes; the peers' installs are in the folder that PEERS names, and GGUF may
#          name a bf16 GGUF of the model for llama.cpp
# --only build   how long a build from nothing takes, and builds after a change; it runs alone, takes
#                an hour, and deploy/bench/build.py --help has its options
# --only hosts   collectives and weight syncs between network namespaces of this machine, beside iperf3; it runs
#                alone, as root, in about three minutes (deploy/bench/hosts.py --help)
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

MODEL="$HOME_DIR/models/SmolLM2-135M-Instruct"
split_values "--runs --only --model --peers" "$@"
set -- "${given[@]}"
if [ "${1:-}" = --only ] && [ "${2:-}" = build ]; then # has a --help of its own
  shift 2
  exec python3 deploy/bench/build.py --out "$BUILD/bench" "$@"
fi
if [ "${1:-}" = --only ] && [ "${2:-}" = hosts ]; then
  shift 2
  exec python3 deploy/bench/hosts.py --bin "$BUILD/bin" --model "$MODEL" "$@" # builds once it knows that it can run
fi
usage_if_asked "$@"

peers=""
arguments=()
while (($# > 0)); do
  case "$1" in
    --runs | --only)
      (($# > 1)) || fail_usage "$1 needs a value"
      if [ "$1" = --runs ] && ! [[ "$2" =~ ^[1-9][0-9]*$ ]]; then
        fail_usage "--runs takes a number from 1 on, not \"$2\""
      fi
      if [ "$1" = --only ] && ! [[ ",$2" =~ ^(,(ops|comm|sync|generation|train|grpo|load))+$ ]]; then
        fail_usage "--only takes build, hosts, or some of ops,comm,sync,generation,train,grpo,load, not \"$2\""
      fi
      arguments+=("$1" "$2")
      shift
      ;;
    --model)
      (($# > 1)) || fail_usage "$1 needs a value"
      MODEL="$(realpath "$2")"
      [ -f "$MODEL/config.json" ] || fail_usage "$MODEL holds no model (config.json)"
      shift
      ;;
    --peers)
      peers="$ROOT/../shared/peers"
      if [[ "${2:-}" && "${2:-}" != --* ]]; then
        peers="$(realpath "$2")"
        shift
      fi
      ;;
    *) fail_usage "unknown argument $1" ;;
  esac
  shift
done

if [ -n "$peers" ]; then
  export PEERS="${PEERS:-$ROOT/.deps/peers}"
  [ -x "$peers/run.sh" ] || fail "$peers holds no peers' scripts: name their folder, --peers DIR"
  # torch and transformers are what the scripts import first.
  ls -d "$PEERS"/venv/lib/python3*/site-packages/{torch,transformers} >/dev/null 2>&1 \
    || fail "the peers are not installed in $PEERS (4 GB, 10 minutes, once):
  PEERS=$PEERS $peers/setup.sh
  or name another folder that has them: PEERS=FOLDER deploy/bench.sh --peers"
  arguments+=(--peers "$peers")
fi
in_front deploy/build.sh tandem-ops-bench tandem-comm-bench tandem-sync-bench tandem-generation-bench \
  tandem-train-bench tandem-load-bench tandem-controller tandem-trainer tandem-rollout tandem-launcher tandemctl
exec python3 deploy/bench/run.py --bin "$BUILD/bin" --out "$BUILD/bench" \
  --model "$MODEL" "${arguments[@]}"
