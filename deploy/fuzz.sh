#!/usr/bin/env bash
# Builds fuzz targets (tests/fuzz/targets) as programs of libFuzzer under AddressSanitizer and
# UndefinedBehaviorSanitizer, with clang, and runs each on its committed inputs and what it makes of them.
#   deploy/fuzz.sh [TARGET ... | --turn] [--runs N | --seconds S] [--list]
# TARGET     without one: all
# --turn     those of this run's turn, as .ci/run does (deploy/scripts/fuzz_turns.py)
# --runs     executions of each target
# --seconds  of each target, without its build (default 60)
# --list     names the targets, and does nothing
# Builds lie in build-fuzz, or beside $TANDEM_BUILD_DIR: the preset fuzz in CMakePresets.json. A finding ends
# the script; its input is then in build-fuzz/found/TARGET. Mend the cause, and copy the input into
# tests/fuzz/corpus/TARGET, which every build reads again (fuzz_corpus_test).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$ROOT/deploy/shell/build_folder.sh"

SLOWEST_SECONDS=60 # of one input, on a busy machine: a target that takes longer counts as one that never ends
MEMORY_MIB=3000    # of a target, sanitizers included

split_values "--runs --seconds" "$@"
set -- "${given[@]}"
usage_if_asked "$@"
mapfile -t all < <(cd "$ROOT/tests/fuzz/targets" && printf '%s\n' *.cc | sed 's/\.cc$//')
limit=(-max_total_time=60) targets=() what=""
while (($# > 0)); do
  case "$1" in
    --runs | --seconds)
      [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || fail_usage "$1 takes a number from 1 on, not \"${2:-}\""
      if [ "$1" = --runs ]; then limit=("-runs=$2"); else limit=("-max_total_time=$2"); fi
      shift
      ;;
    --list | --turn) what="$1" ;;
    -*) fail_usage "unknown argument $1" ;;
    *)
      [[ " ${all[*]} " = *" $1 "* ]] || fail_usage "there is no target $1; there are: ${all[*]}"
      targets+=("$1")
      ;;
  esac
  shift
done
if [ "$what" = --list ]; then
  printf '%s\n' "${all[@]}"
  exit 0
fi
if [ "$what" = --turn ]; then
  ((${#targets[@]} == 0)) || fail_usage "--turn chooses the targets: name none"
  drawn="$(mktemp)"
  trap 'rm -f "$drawn"' EXIT
  python3 deploy/scripts/fuzz_turns.py --out "$drawn"
  mapfile -t targets <"$drawn"
fi
((${#targets[@]} > 0)) || targets=("${all[@]}")

# What is missing is said by name: a run without it would look as one that found nothing.
check_clang() {
  local probe
  command -v clang++ >/dev/null \
    || fail "clang++ is missing, which builds the fuzz targets: run deploy/setup.sh --dev"
  probe="$(mktemp -d)"
  printf 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }\n' >"$probe/f.cc"
  if ! clang++ -fsanitize=fuzzer,address,undefined "$probe/f.cc" -o "$probe/f" >"$probe/log" 2>&1; then
    sed 's/^/    /' "$probe/log" >&2
    rm -rf "$probe"
    fail "clang's libFuzzer is missing (Debian's package libclang-rt-14-dev): run deploy/setup.sh --dev"
  fi
  rm -rf "$probe"
}

# The committed inputs of earlier findings are run again first; they are small.
run_target() { # TARGET
  local corpus="$FUZZ/corpus/$1" found="$FUZZ/found/$1" begin=$SECONDS log="$FUZZ/$1.log"
  local options=() # of this target alone: tests/fuzz/CMakeLists.txt
  read -ra options <"$FUZZ/fuzz/$1.options" || true
  mkdir -p "$corpus" "$found"
  say "$1: ${limit[*]#-}"
  if ! in_front "$FUZZ/fuzz/$1" "${limit[@]}" -timeout="$SLOWEST_SECONDS" -rss_limit_mb="$MEMORY_MIB" \
    -max_len=4096 -print_final_stats=1 -artifact_prefix="$found/" "${options[@]}" "$corpus" "tests/fuzz/corpus/$1" \
    >"$log" 2>&1; then
    tail -n 60 "$log" | sed 's/^/    /' >&2
    fail "$1 found an input that breaks it, in $found; the whole log: $log"
  fi
  say "$1: $(sed -nE 's/^stat::number_of_executed_units: +//p' "$log") executions without a finding ($(
    seconds "$begin") s)"
}

FUZZ="$BUILD-fuzz"
check_clang
need_space "$FUZZ" 3000 "the fuzz targets"
configure_build fuzz "$FUZZ" >/dev/null || fail "the build of the fuzz targets cannot be configured"
begin=$SECONDS
in_front ninja -C "$FUZZ" -j "$(jobs_for_build)" "${targets[@]/#/fuzz_}" \
  || fail "the build of the fuzz targets failed"
say "${#targets[@]} fuzz targets are built ($(seconds "$begin") s): ${targets[*]}"
# Targets that read folders make theirs where writing is free.
TMPDIR="$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")"
export TMPDIR UBSAN_OPTIONS=print_stacktrace=1
for target in "${targets[@]}"; do run_target "$target"; done
