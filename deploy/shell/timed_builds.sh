# shellcheck shell=bash
# Builds that end when their time is over; to be sourced after common.sh.

# build_until END BUILD TARGET...: builds one target after the other until $SECONDS is END, and leaves in `built`
# those that are there. What ninja has made of the next one stays for the next time. Fails if a build does.
build_until() {
  local end="$1" build="$2" target left code
  shift 2
  built=()
  for target in "$@"; do
    left=$((end - SECONDS))
    ((left > 0)) || return 0
    code=0
    timeout --signal=INT --kill-after=20 "$left" ninja -C "$build" -j "$(jobs_for_build)" "$target" || code=$?
    if ((code == 0)); then
      built+=("$target")
    elif ((SECONDS >= end)); then
      return 0
    else
      return "$code"
    fi
  done
}
