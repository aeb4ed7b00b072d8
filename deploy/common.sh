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
# MiB that are to be free before a part begins; docs/start/quickstart.md has the same.
TORCH_MIB=2050 BUILD_MIB=1500 MODEL_MIB=600 RUN_MIB=5000
VENV="$HOME_DIR/.deps/venv"
CACHE="$HOME_DIR/.cache"
cd "$ROOT"
source "$ROOT/deploy/shell/basics.sh"

# Ctrl-C reaches a script and all that it has started, scripts among them: the first one says so, once, and
# each ends with 130. Training is not part of this, as the launcher takes the place of the script.
[ -n "${TANDEM_FIRST_SCRIPT:-}" ] || export TANDEM_FIRST_SCRIPT="$$"
stopped() { # CODE
  trap '' INT TERM HUP
  end_children
  if [ "$TANDEM_FIRST_SCRIPT" = "$$" ]; then
    if [ -t 2 ]; then printf '\n' >&2; fi
    printf 'stopped; start again to go on\n' >&2
  fi
  exit "$1"
}
trap 'stopped 130' INT
trap 'stopped 143' TERM
trap 'stopped 129' HUP

# in_front COMMAND...: runs COMMAND in the background and waits for it, because bash handles a signal at once only
# while it waits. COMMAND has the script's stdin, and Ctrl-C reaches it.
in_front() {
  local code=0
  (trap - INT && "$@") <&0 &
  wait "$!" || code=$?
  return "$code"
}
# Ids of all that this script has started, and that those have. apt-get is left to end: a dpkg that is cut
# off leaves packages half installed, and the next start waits for its lock.
descendants() {
  sed -nE 's/^([0-9]+) \((.*)\) [^Z] ([0-9]+) .*/\1 \3 \2/p' /proc/[0-9]*/stat 2>/dev/null \
    | awk -v top="$$" '{parent[$1] = $2; name[$1] = $3}
      END {for (id in parent) {
        for (at = id; at in parent && at != top && name[at] !~ /^(apt-get|dpkg|sudo)$/;) at = parent[at]
        if (at == top && id != top) print id}}' | sort -n # subshells first: they would report what was killed
}
# The caller's process group is left alone: it may be a pipeline's, or .ci/run's.
end_children() {
  local id round signal left
  for round in {1..60}; do
    signal=TERM left=""
    ((round < 50)) || signal=KILL
    for id in $(descendants); do
      if kill -s "$signal" "$id" 2>/dev/null; then left=yes; fi
    done
    [ -n "$left" ] || return 0
    sleep 0.1
  done
}

# What did not run, and why: printed, and repeated in the summary of .ci/run.
note() {
  say "$*"
  [ -z "${TANDEM_CI_NOTES:-}" ] || printf '%s\n' "$*" >>"$TANDEM_CI_NOTES"
}
# The comment at the head of the script that runs.
usage() { awk 'NR > 1 && !/^#/ {exit} NR > 1 {sub(/^# ?/, ""); print}' "$SCRIPT"; }
# The error stands last, where one looks.
fail_usage() {
  printf '%s\n\nerror: %s\n' "$(usage)" "$*" >&2
  exit 64
}
# usage_if_asked "$@": prints the usage and exits if an argument asks for it; otherwise checks the environment
# variables.
usage_if_asked() {
  local argument
  for argument in "$@"; do
    case "$argument" in
      -h | --help)
        usage
        exit 0
        ;;
    esac
  done
  check_number TANDEM_JOBS 1
  check_number TANDEM_PROGRESS_SECONDS 0
}
# split_values "--steps --set" "$@": fills `given` with the arguments, --steps=6 as --steps 6 for those named.
split_values() {
  local names=" $1 " argument
  shift
  given=()
  for argument in "$@"; do
    case "$argument" in
      --*=*)
        if [[ "$names" == *" ${argument%%=*} "* ]]; then
          given+=("${argument%%=*}" "${argument#*=}")
          continue
        fi
        ;;
    esac
    given+=("$argument")
  done
}
# check_number VARIABLE LEAST: one of the environment that holds a whole number; empty is as not set.
check_number() {
  local value="${!1:-}"
  [ -n "$value" ] || return 0
  if [[ ! "$value" =~ ^(0|[1-9][0-9]{0,5})$ ]] || ((value < $2)); then
    printf 'error: %s is "%s", and may be a whole number from %d to 999999, or unset\n' "$1" "$value" "$2" >&2
    exit 64
  fi
}
seconds() { printf '%d' "$((SECONDS - ${1:-0}))"; }

# A path as one types it here: below the checkout without the checkout's own.
short() { printf '%s' "${1#"$ROOT"/}"; }

need_home() {
  can_write "$HOME_DIR" || fail "$HOME_DIR cannot be written, and downloads, models and runs go there:
  name another folder for them and start again: TANDEM_HOME=FOLDER $(short "$SCRIPT")"
  can_write "$BUILD" || fail "$BUILD cannot be written, and the build goes there:
  name another folder for it and start again: TANDEM_BUILD_DIR=FOLDER $(short "$SCRIPT")"
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
