# shellcheck shell=bash disable=SC2034
# Shared by the scripts of this folder: `source "$(dirname "$0")/common.sh"`.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
SCRIPT="$(realpath "$0")"
BUILD="${TANDEM_BUILD_DIR:-$ROOT/build}"
VENV="$ROOT/.deps/venv"
CACHE="$ROOT/.cache"
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

# Compilers at once: one per core, and no more than 1.5 GiB of memory each allows.
jobs_for_build() {
  local cores memory_kib jobs
  cores="$(nproc)"
  memory_kib="$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)"
  jobs=$((memory_kib / 1572864))
  ((jobs < 1)) && jobs=1
  ((jobs > cores)) && jobs="$cores"
  printf '%d' "${TANDEM_JOBS:-$jobs}"
}
