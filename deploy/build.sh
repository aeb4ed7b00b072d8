#!/usr/bin/env bash
# Configures and builds into build/ (or $TANDEM_BUILD_DIR); programs land in build/bin. Objects that
# are built already are kept, also when a build was interrupted or failed.
#   deploy/build.sh [--cuda | --cuda=all | --no-cuda] [--release] [TARGET ...]
# TARGET      what to build; without one everything, tests included
# --cuda      compiles the GPU kernels for one architecture: that of the GPU found here, else sm_90
# --cuda=all  for all architectures that a release has
# --no-cuda   leaves them out
# --release   all options as deploy/package.sh needs them, whatever the memory, GPU and environment;
#             with all architectures, unless one of the above says otherwise
# Without one of these an existing build directory keeps its setting; a new one builds the kernels if
# a GPU is found: nvidia-smi lists one, or /dev/nvidia0 exists.
# Environment: TANDEM_JOBS = compilers at once (default: by cores and memory), TANDEM_VERBOSE=1 = all
# that the compilers say.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$ROOT/deploy/shell/build_folder.sh"
source "$ROOT/deploy/shell/progress.sh"
source "$ROOT/deploy/shell/failures.sh"
source "$ROOT/deploy/shell/toolchain.sh"

DEFAULT_ARCHITECTURE=90
# Everything that changes bytes of programs and that the machine, the environment (CXXFLAGS) or an older
# configuration could decide. An empty value is one: it keeps the environment's out.
RELEASE=(
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS= -DCMAKE_CXX_FLAGS= -DCMAKE_CUDA_FLAGS= -DCMAKE_EXE_LINKER_FLAGS=
  -DCMAKE_UNITY_BUILD=ON -DTANDEM_UNITY_BATCH=10 -DCMAKE_DISABLE_PRECOMPILE_HEADERS=OFF
  -DTANDEM_SANITIZE= -DTANDEM_GRPC_STATIC=ON -DTANDEM_HARDENED=ON
)
usage_if_asked "$@"
cuda="" release=()
targets=()
for argument in "$@"; do
  case "$argument" in
    --cuda | --cuda=all | --no-cuda) cuda="$argument" ;;
    --release) release=("${RELEASE[@]}") ;;
    -*) fail_usage "unknown argument $argument" ;;
    *) targets+=("$argument") ;;
  esac
done
[ -z "${release[*]}" ] || cuda="${cuda:---cuda=all}"

cache_value() { sed -nE "s/^$1:[A-Z]+=//p" "$BUILD/CMakeCache.txt" 2>/dev/null || true; }

say_whether_kernels() {
  if find_nvcc >/dev/null; then
    say "a GPU is found: its kernels are compiled"
  else
    say "a GPU is found and no nvcc: its kernels are not compiled (docs/guides/gpus.md says where nvcc comes from)"
  fi
}

# Fills `options` by what was asked for, or for a new build directory by what is found here.
choose_cuda() {
  local found
  found="$(gpu_architecture)"
  [ -n "$cuda" ] || [ -f "$BUILD/build.ninja" ] || case "$found" in
    "") cuda=--no-cuda && say "no GPU is found: its kernels are not compiled (--cuda compiles them)" ;;
    *) cuda=--auto && say_whether_kernels ;;
  esac
  [[ "$found" =~ ^[0-9]+$ ]] || found="$DEFAULT_ARCHITECTURE"
  case "$cuda" in
    --cuda=all) options+=(-DTANDEM_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=all) ;;
    --cuda) options+=(-DTANDEM_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$found") ;;
    --auto) options+=(-DTANDEM_CUDA=AUTO "-DCMAKE_CUDA_ARCHITECTURES=$found") ;;
    --no-cuda) options+=(-DTANDEM_CUDA=OFF) ;;
  esac
}

# One line of every build: which kernels the build directory has, as its rules tell, and since when.
say_kernels() {
  local before="" architectures
  [ "$configured" = now ] || before="as this build directory was configured before; "
  if ! grep -qs CUDA_COMPILER__ "$BUILD/CMakeFiles/rules.ninja"; then
    say "GPU kernels: none (${before}--cuda compiles them)"
    return
  fi
  architectures="$(cache_value CMAKE_CUDA_ARCHITECTURES)"
  case "$architectures" in
    "" | all) architectures="80;90;100" ;; # as deploy/cmake/TandemCuda.cmake has them
  esac
  architectures="$(sed -E 's/-(real|virtual)//g; s/(^|;)/\1sm_/g; s/;/, /g' <<<"$architectures")"
  say "GPU kernels: $architectures (${before}--no-cuda leaves them out)"
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

# Reports a missing LibTorch before CMake runs. A build directory that is configured keeps the LibTorch
# that it was made with, which need not be the one of setup.sh.
check_libtorch() {
  local torch
  torch="$(cache_value TANDEM_TORCH_ROOT)"
  [ -n "$torch" ] || torch="$(echo "$VENV"/lib/python3*/site-packages/torch)"
  [ -f "$torch/lib/libtorch_cpu.so" ] || fail "LibTorch is not in $(torch_place "$torch"): run deploy/setup.sh first;
  TANDEM_HOME names the folder of .deps, here $HOME_DIR"
}
torch_place() { case "$1" in "$VENV"/*) printf '%s' "$VENV" ;; *) printf '%s' "$1" ;; esac }

configure_into_log() { configure_build release "$BUILD" "${options[@]}" >"$BUILD/configure.log" 2>&1; }
configure() {
  local other
  other="$(cache_value CMAKE_HOME_DIRECTORY)"
  [ -z "$other" ] || [ "$other" = "$ROOT" ] || fail "$BUILD is the build of another checkout, $other:
  name another folder with TANDEM_BUILD_DIR, or remove that one, and start again"
  check_libtorch
  options=("${release[@]}")
  choose_cuda
  ! has_options || return 0
  need_space "$BUILD" "$BUILD_MIB" "building"
  check_toolchain
  say "configuring in $BUILD"
  mkdir -p "$BUILD"
  in_front configure_into_log \
    || explain_failure "configuring" "$BUILD/configure.log" "$BUILD"
  configured=now
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

run_ninja() { # JOBS
  NINJA_STATUS="[%f/%t] " LC_ALL=C.UTF-8 ninja -C "$BUILD" -j "$1" "${targets[@]}" 2>&1 \
    | read_lines show_ninja_line
}
build() {
  local begin=$SECONDS jobs
  jobs="$(jobs_for_build)"
  if has_work "$BUILD" "${targets[@]}"; then need_space "$BUILD" "$BUILD_MIB" "building"; fi
  say "building ${targets[*]:-everything}, compilers at once: $jobs"
  : >"$BUILD/build.log"
  ninja_begin=$SECONDS
  in_front run_ninja "$jobs" || explain_failure "the build" "$BUILD/build.log" "$BUILD"
  progress_end
  grep -a ' warning: ' "$BUILD/build.log" | head -n 20 || true
  say "the build is complete ($(seconds "$begin") s)"
}

configured=before
need_home
configure
say_kernels
build
