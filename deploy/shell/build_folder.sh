# shellcheck shell=bash
# What scripts ask CMake and ninja about a build folder, alike for all. Sourced behind common.sh.

# configure_build PRESET FOLDER [OPTION ...]: PRESET is one of CMakePresets.json. A folder that is new also
# gets what this machine needs and where LibTorch is, unless an OPTION says otherwise; one that is configured
# keeps what it has.
configure_build() {
  local preset="$1" folder="$2" torch
  local machine=()
  if [ ! -f "$folder/build.ninja" ]; then
    torch="$(echo "$VENV"/lib/python3*/site-packages/torch)"
    if [ "$HOME_DIR" != "$ROOT" ] && [ -d "$torch" ]; then machine+=("-DTANDEM_TORCH_ROOT=$torch"); fi
    if is_small_machine; then machine+=(-DTANDEM_UNITY_BATCH=3); fi
  fi
  cmake -S "$ROOT" --preset "$preset" -B "$folder" "${machine[@]}" "${@:3}"
}

# has_work FOLDER [TARGET ...]: whether ninja would compile something or link what is not there; also where
# it cannot tell. What follows tandem_this_build alone does not count: each build looks at that anew, and
# ninja lists its source and all programs before it knows that nothing has changed. It reads its file from
# stdin, as under the file's own name it lists that CMake looks for new sources and nothing else.
has_work() {
  local folder="$1" line steps
  steps="$(ninja -C "$folder" -n -f /dev/stdin "${@:2}" <"$folder/build.ninja" 2>/dev/null)" || return 0
  while IFS= read -r line; do
    case "$line" in
      *"Building "*/this_build.cc.o) ;;
      *"Building "*) return 0 ;;
      *"Linking "*) [ -e "$folder/${line##* }" ] || return 0 ;;
    esac
  done <<<"$steps"
  return 1
}
