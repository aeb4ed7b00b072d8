# shellcheck shell=bash
# Messages, and checks before a script starts its work. Sourced by common.sh, and by the quickstart of a
# package, which has this file in its folder shell.

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# can_write FOLDER: whether files can be made there, or the folder itself where it is missing.
can_write() {
  local folder="$1"
  while [ ! -e "$folder" ]; do folder="$(dirname "$folder")"; done
  [ -d "$folder" ] && [ -w "$folder" ]
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

# check_processor: the programs would end at their start.
check_processor() {
  grep -qw avx2 "${TANDEM_CPUINFO:-/proc/cpuinfo}" && grep -qw fma "${TANDEM_CPUINFO:-/proc/cpuinfo}" \
    || fail "this processor has no AVX2 with FMA, which Tandem's kernels need: use another machine"
}

LONGEST_RUN_DIR=80 # bytes: a Unix socket's path takes 107, and the longest name there is 25
# check_run_dir FOLDER COMMAND: COMMAND is what the remedy starts.
check_run_dir() {
  ((${#1} <= LONGEST_RUN_DIR)) || fail "the run's folder would be
  $1,
  ${#1} bytes long, and paths of sockets in it may have 107: $LONGEST_RUN_DIR are left for the folder.
  Name a shorter one and start again: $2 --set cluster.run_dir=/tmp/tandem-quickstart"
}
