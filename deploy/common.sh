# shellcheck shell=bash disable=SC2034
# Shared by the scripts of this folder: `source "$(dirname "$0")/common.sh"`.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
SCRIPT="$(realpath "$0")"
# Everything that is downloaded or made lies in TANDEM_HOME: .deps, .cache, models, data, runs. That is
# the checkout, unless it cannot be written; then a folder beside the build directory that one named.
BUILD="${TANDEM_BUILD_DIR:-${TANDEM_HOME:-$ROOT}/build}"
HOME_DIR="${TANDEM_HOME:-$ROOT}"
if [ -z "${TANDEM_HOME:-}" ] && [ -n "${TANDEM_BUILD_DIR:-}" ] && [ ! -w "$ROOT" ]; then
  HOME_DIR="$BUILD-home"
fi
[[ "$BUILD" = /* ]] || BUILD="$PWD/$BUILD"
[[ "$HOME_DIR" = /* ]] || HOME_DIR="$PWD/$HOME_DIR"
# Scripts that this one starts are in another folder and find the same places.
if [ "$HOME_DIR" != "$ROOT" ]; then export TANDEM_HOME="$HOME_DIR"; fi
if [ "$BUILD" != "$ROOT/build" ]; then export TANDEM_BUILD_DIR="$BUILD"; fi
VENV="$HOME_DIR/.deps/venv"
CACHE="$HOME_DIR/.cache"
cd "$ROOT"

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
# What did not run, and why: printed, and repeated in the summary of .ci/run.
note() {
  say "$*"
  [ -z "${TANDEM_CI_NOTES:-}" ] || printf '%s\n' "$*" >>"$TANDEM_CI_NOTES"
}
# The comment at the head of the script that runs.
usage() { awk 'NR > 1 && !/^#/ {exit} NR > 1 {sub(/^# ?/, ""); print}' "$SCRIPT"; }
fail_usage() {
  printf 'error: %s\n\n%s\n' "$*" "$(usage)" >&2
  exit 64
}
# usage_if_asked "$@": prints the usage and ends where the first argument asks for it.
usage_if_asked() {
  case "${1:-}" in
    -h | --help)
      usage
      exit 0
      ;;
  esac
}
seconds() { printf '%d' "$((SECONDS - ${1:-0}))"; }

# A path as one types it here: below the checkout without the checkout's own.
short() { printf '%s' "${1#"$ROOT"/}"; }

# can_write FOLDER: whether files can be made there, or the folder itself where it is missing.
can_write() {
  local folder="$1"
  while [ ! -e "$folder" ]; do folder="$(dirname "$folder")"; done
  [ -d "$folder" ] && [ -w "$folder" ]
}
need_home() {
  can_write "$HOME_DIR" || fail "$HOME_DIR cannot be written, and downloads, models and runs go there:
  name another folder for them and start again: TANDEM_HOME=FOLDER $(short "$SCRIPT")"
  can_write "$BUILD" || fail "$BUILD cannot be written, and the build goes there:
  name another folder for it and start again: TANDEM_BUILD_DIR=FOLDER $(short "$SCRIPT")"
}

# MiB that are free where FOLDER is or will be.
free_mib() {
  local folder="$1"
  while [ ! -e "$folder" ]; do folder="$(dirname "$folder")"; done
  df -Pm -- "$folder" | awk 'NR == 2 {print $4}'
}
# need_space FOLDER MIB WHAT: said before the work, not after half of it.
need_space() {
  local free
  free="$(free_mib "$1")"
  [[ "$free" =~ ^[0-9]+$ ]] || return 0 # a df that does not tell
  ((free >= $2)) || fail "$3 needs $2 MiB in $1, and $free MiB are free there:
  free $(($2 - free)) MiB or more and start again; what is there already is kept"
}

# KiB of memory: all, and what new processes can have; of the machine or of the container's limit.
memory_kib() { # total | available
  local field=MemTotal kib limit used=0
  [ "$1" = total ] || field=MemAvailable
  kib="$(awk -v field="$field:" '$1 == field {print $2}' /proc/meminfo)"
  limit="$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)"
  if [[ "$limit" =~ ^[0-9]+$ ]]; then
    [ "$1" = total ] || used="$(cat /sys/fs/cgroup/memory.current 2>/dev/null || echo 0)"
    limit=$(((limit - used) / 1024))
    ((limit > kib)) || kib="$limit"
  fi
  printf '%d' "$kib"
}
# Below 6 GiB several sources in one compiler are too many for it.
is_small_machine() { (($(memory_kib total) < 6291456)); }
# Compilers at once: one per core, and no more than 1.5 GiB of memory each allow; on a small machine
# one alone, as the largest sources take 2 GiB.
jobs_for_build() {
  local cores jobs
  cores="$(nproc)"
  jobs=$(($(memory_kib available) / 1572864))
  ((jobs <= cores)) || jobs="$cores"
  if ((jobs < 1)) || is_small_machine; then jobs=1; fi
  printf '%d' "${TANDEM_JOBS:-$jobs}"
}
