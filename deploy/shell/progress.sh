# shellcheck shell=bash
# How far a long command is, and how much time is left: one line that is redrawn on a terminal, else a
# plain line every now and then. Sourced behind common.sh.
#   TANDEM_PART                "2/5 build": what every line begins with
#   TANDEM_PROGRESS_SECONDS    between plain lines (default 15)

PROGRESS_SHOWN=-1000 # SECONDS of the newest line

on_terminal() { [ -t 1 ]; }
columns() { stty size <&1 2>/dev/null | awk '$2 > 20 {print $2; found = 1} END {if (!found) print 80}'; }

# progress_show TEXT [now]: not more often than is good; "now" shows it in any case.
progress_show() {
  local text="${TANDEM_PART:+$TANDEM_PART: }$1"
  if on_terminal; then
    [ "$PROGRESS_SHOWN" != "$SECONDS" ] || [ "${2:-}" = now ] || return 0
    printf '\r\033[K%.*s' "$(($(columns) - 1))" "$text"
  else
    ((SECONDS - PROGRESS_SHOWN >= ${TANDEM_PROGRESS_SECONDS:-15})) || [ "${2:-}" = now ] || return 0
    printf '    %s\n' "$text"
  fi
  PROGRESS_SHOWN="$SECONDS"
}
# Leaves the line free for what is said next.
progress_end() {
  if on_terminal; then printf '\r\033[K'; fi
  PROGRESS_SHOWN=-1000
}

# time_left ELAPSED DONE TOTAL: ", about 4 min left"; nothing before there is something to judge by.
time_left() {
  local left
  (($1 >= 3 && $2 > 0 && $3 > $2)) || return 0
  left=$(($1 * ($3 - $2) / $2))
  if ((left >= 90)); then
    printf ', about %d min left' "$(((left + 30) / 60))"
  else
    printf ', about %d s left' "$(((left + 9) / 10 * 10))"
  fi
}

# read_lines HANDLER: the handler gets every line of stdin, and an empty one for a second without any.
read_lines() {
  local handler="$1" line="" part code
  while true; do
    code=0
    IFS= read -r -t 1 part || code=$?
    line+="$part"
    if ((code > 128)); then # a second without the end of a line
      "$handler" ""
      continue
    fi
    if ((code == 0)) || [ -n "$line" ]; then "$handler" "$line"; fi
    ((code == 0)) || return 0
    line=""
  done
}

# MiB of files and folders together; one that is not there counts nothing.
size_mib() { { du -scm -- "$@" 2>/dev/null || true; } | awk 'END {print $1 + 0}'; }

# growing WHAT MIB FOLDER... -- COMMAND...: runs COMMAND and tells how much of the expected MIB the
# folders have grown by. The command stands in the foreground, where Ctrl-C reaches it.
growing() {
  local what="$1" total="$2" watcher code=0
  shift 2
  local folders=()
  while [ "$1" != -- ]; do
    folders+=("$1")
    shift
  done
  shift
  watch_growth "$what" "$total" "${folders[@]}" &
  watcher=$!
  in_front "$@" || code=$?
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  progress_end
  return "$code"
}
watch_growth() {
  local what="$1" total="$2" before now grown=0 begin=$SECONDS
  shift 2
  before="$(size_mib "$@")"
  while sleep 2 && kill -0 "$$" 2>/dev/null; do
    now=$(($(size_mib "$@") - before))
    ((now <= grown)) || grown="$now" # a file that moves counts twice for a moment, or not at all
    ((grown <= total)) || grown="$total"
    progress_show "$what: $grown of $total MiB$(time_left $((SECONDS - begin)) "$grown" "$total")"
  done
}
