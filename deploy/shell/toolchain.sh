# shellcheck shell=bash
# What is there to build with. Sourced behind common.sh.

# at_least VERSION WANTED
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# check_tool NAME VERSION WANTED HOW: VERSION as the tool tells it, empty where there is none.
check_tool() {
  [ -n "$2" ] || fail "there is no $1, and $3 or newer is needed: $4, then start again"
  at_least "$2" "$3" || fail "$1 here is $2, which is too old: $3 or newer is needed;
  $4, then start again"
}
first_version() { "$@" 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)+|^[0-9]+$' | head -n 1 || true; }

check_toolchain() {
  local compiler="${CXX:-c++}"
  check_tool CMake "$(first_version cmake --version)" 3.25 \
    "Debian 12 has 3.25 (apt-get install cmake), and every newer one is in PyPI's package cmake"
  check_tool ninja "$(first_version ninja --version)" 1.8 "apt-get install ninja-build"
  if "$compiler" --version 2>/dev/null | grep -qi clang; then
    check_tool "the compiler $compiler (clang)" "$(first_version "$compiler" -dumpversion)" 14 \
      "name another with CXX=, such as CXX=g++-12"
  else
    check_tool "the compiler $compiler (GCC)" "$(first_version "$compiler" -dumpfullversion -dumpversion)" 12 \
      "install a newer one (Debian 12: apt-get install g++) or name one with CXX=, such as CXX=g++-12"
  fi
  case "$(uname -m)" in
    x86_64) ;;
    *) fail "this machine is $(uname -m), and Tandem runs on x86-64 with AVX2 alone" ;;
  esac
}

# find_nvcc: its path, from where deploy/cmake/TandemCuda.cmake looks and in the same order; fails without one.
CUDA_TOOLKIT="${TANDEM_CUDA_TOOLKIT:-/usr/local/cuda}" # where NVIDIA's packages put it; tests name another
find_nvcc() {
  local file
  for file in "${CUDACXX:-}" ${CUDA_HOME:+"$CUDA_HOME/bin/nvcc"} "$(command -v nvcc || true)" \
    "$CUDA_TOOLKIT/bin/nvcc"; do
    [ -f "$file" ] && [ -x "$file" ] || continue
    printf '%s' "$file"
    return
  done
  return 1
}

# The architecture of the GPU here as nvcc writes it (90), "unknown" where a GPU does not tell, nothing
# where there is none. Those below sm_80 cannot run the kernels.
gpu_architecture() {
  local capability
  if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
    capability="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ')"
    if [[ ! "$capability" =~ ^[0-9]+$ ]]; then
      printf unknown
    elif ((capability >= 80)); then
      printf '%s' "$capability"
    fi
  elif [ -e "${TANDEM_GPU_DEVICE:-/dev/nvidia0}" ]; then
    printf unknown
  fi
}
