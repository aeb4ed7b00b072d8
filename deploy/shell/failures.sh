# shellcheck shell=bash
# What a log of a command that failed says: the thing, the reason, the remedy. Sourced behind common.sh.

# cmake_errors LOG: each error of CMake's whole, up to its second blank line, as the cause stands below its
# first line. Blank lines are left out.
cmake_errors() {
  awk '/^CMake Error/ {inside = 1; blanks = 0}
    inside && /^[ \t]*$/ {if (++blanks == 2) inside = 0; next}
    inside' "$1"
}

# show_errors LOG: the lines that tell, or the last ones where none does.
show_errors() {
  local lines
  lines="$(cmake_errors "$1" | head -n 30)"
  [ -n "$lines" ] || lines="$(grep -aE '(^|[^a-z-])(error|fatal error|Error)[: ]|^E: |^ERROR|^FAILED: |CMake Error|undefined (reference|symbol)|No space left|Killed' \
    "$1" | head -n 20 || true)"
  [ -n "$lines" ] || lines="$(tail -n 12 "$1")"
  printf '%s\n' "$lines" | cut -c 1-400 | sed 's/^/    /' >&2
}

is_full_disk() { grep -qaE 'No space left on device|Disk quota exceeded|Errno 28|not have enough free space' "$1"; }
is_no_network() {
  grep -qaE 'Temporary failure (in name resolution|resolving)|Could not resolve|Name or service not known|Network is unreachable|No route to host|Connection (timed out|refused)|Failed to establish a new connection|Could not connect to|Read timed out|Failed to fetch|No matching distribution found for' "$1"
}
is_no_memory() {
  grep -qaE 'Killed signal terminated program|[Cc]annot allocate memory|virtual memory exhausted|out of memory allocating|std::bad_alloc|MemoryError' "$1"
}

# explain_failure WHAT LOG FOLDER: ends with one of the causes that are known, or with the log's path.
explain_failure() {
  local what="$1" log="$2" folder="$3" cause
  if is_full_disk "$log"; then
    cause="the disk of $folder is full ($(free_mib "$folder") MiB are free): make room and start again"
  elif is_no_memory "$log"; then
    cause="there was not enough memory: end other programs, or take fewer jobs at once with TANDEM_JOBS=1,
  and start again"
  elif is_no_network "$log"; then
    cause="the network or the package server could not be reached: check the connection and the proxy
  settings (https_proxy), and start again"
  else
    cause="the lines above say why; mend the cause and start again"
  fi
  show_errors "$log"
  fail "$what failed: $cause.
  What was done is kept. The whole log: $log"
}
