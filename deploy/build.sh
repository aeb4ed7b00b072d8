#!/usr/bin/env bash
# Configures and builds into build/ (or $TANDEM_BUILD_DIR); programs land in build/bin. What is built
# already is kept, also where a build was interrupted or failed.
#   deploy/build.sh [--cuda | --cuda=all | --no-cuda] [TARGET ...]     without a target: everything,
#                                                                      tests included
# --cuda      compiles the GPU kernels for one architecture: that of the GPU found here, else sm_90
# --cuda=all  for all architectures that a release has
# --no-cuda   leaves them out
# Without one of these an existing build directory keeps what it has; a new one gets the kernels where
# a GPU is found: nvidia-smi lists one, or there is a /dev/nvidia0.
# Environment: TANDEM_JOBS = compilers at once (default: by cores and memory), TANDEM_VERBOSE=1 = all
# that the compilers say.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$ROOT/deploy/shell/progress.sh"
source "$ROOT/deploy/shell/failures.sh"
source "$ROOT/deploy/shell/toolchain.sh"

DEFAULT_ARCHITECTURE=90
usage_if_asked "$@"
cuda=""
targets=()
for argument in "$@"; do
  case "$argument" in
    --cuda | --cuda=all | --no-cuda) cuda="$argument" ;;
    -*) fail_usage "unknown argument $argument" ;;
    *) targets+=("$argument") ;;
  esac
done

cache_value() { sed -nE "s/^$1:[A-Z]+=//p" "$BUILD/CMakeCache.txt" 2>/dev/null || true; }

# Fills `options` by what was asked for, or for a new build directory by what is found here.
choose_cuda() {
  local found
  found="$(gpu_architecture)"
  [ -n "$cuda" ] || [ -f "$BUILD/build.ninja" ] || case "$found" in
    "") cuda=--no-cuda && say "no GPU is found: its kernels are not compiled (--cuda compiles them)" ;;
    *) cuda=--auto && say "a GPU is found: its kernels are compiled where nvcc is" ;;
  esac
  [[ "$found" =~ ^[0-9]+$ ]] || found="$DEFAULT_ARCHITECTURE"
  case "$cuda" in
    --cuda=all) options+=(-DTANDEM_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=all) ;;
    --cuda) options+=(-DTANDEM_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$found") ;;
    --auto) options+=(-DTANDEM_CUDA=AUTO "-DCMAKE_CUDA_ARCHITECTURES=$found") ;;
    --no-cuda) options+=(-DTANDEM_CUDA=OFF) ;;
  esac
}

# Whether the build directory has all that `options` ask for.
has_options() {
  local option
  [ -f "$BUILD/build.ninja" ] || return 1
  for option in "${options[@]}"; do
    option="${option#-D}"
    [ "$(cache_value "${option%%=*}")" = "${option#*=}" ] || return 1
  done
}

configure() {
  local torch other
  other="$(cache_value CMAKE_HOME_DIRECTORY)"
  [ -z "$other" ] || [ "$other" = "$ROOT" ] || fail "$BUILD is the build of another checkout, $other:
  name another folder with TANDEM_BUILD_DIR, or remove that one, and start again"
  options=()
  choose_cuda
  if [ ! -f "$BUILD/build.ninja" ]; then
    torch="$(echo "$VENV"/lib/python3*/site-packages/torch)"
    if [ "$HOME_DIR" != "$ROOT" ] && [ -d "$torch" ]; then options+=("-DTANDEM_TORCH_ROOT=$torch"); fi
    if is_small_machine; then options+=(-DTANDEM_UNITY_BATCH=4); fi
  fi
  ! has_options || return 0
  check_toolchain
  say "configuring in $BUILD"
  mkdir -p "$BUILD"
  cmake -S "$ROOT" -B "$BUILD" -G Ninja "${options[@]}" >"$BUILD/configure.log" 2>&1 \
    || explain_failure "configuring" "$BUILD/configure.log" "$BUILD"
  grep -a "CUDA backend" "$BUILD/configure.log" || true
}

# "[12/310] Building ...": ninja's own line; everything else is what compilers say.
show_ninja_line() {
  [ -z "$1" ] || printf '%s\n' "$1" >>"$BUILD/build.log"
  if [ -n "${TANDEM_VERBOSE:-}" ]; then
    [ -z "$1" ] || printf '%s\n' "$1"
    return
  fi
  [[ ! "$1" =~ ^\[([0-9]+)/([0-9]+)\] ]] || ninja_done="${BASH_REMATCH[1]}" ninja_total="${BASH_REMATCH[2]}"
  ((${ninja_total:-0} > 0)) || return 0
  progress_show "$ninja_done of $ninja_total objects$(
    time_left $((SECONDS - ninja_begin)) "$ninja_done" "$ninja_total")"
}

build() {
  local begin=$SECONDS jobs
  jobs="$(jobs_for_build)"
  # A build that has nothing left to do needs no room.
  ninja -C "$BUILD" -n "${targets[@]}" 2>/dev/null | grep -qa 'no work to do' \
    || need_space "$BUILD" 1000 "building"
  say "building ${targets[*]:-everything}, compilers at once: $jobs"
  : >"$BUILD/build.log"
  ninja_begin=$SECONDS
  NINJA_STATUS="[%f/%t] " LC_ALL=C.UTF-8 ninja -C "$BUILD" -j "$jobs" "${targets[@]}" 2>&1 \
    | read_lines show_ninja_line || explain_failure "the build" "$BUILD/build.log" "$BUILD"
  progress_end
  grep -a ' warning: ' "$BUILD/build.log" | head -n 20 || true
  say "the build is complete ($(seconds "$begin") s)"
}

need_home
configure
build
