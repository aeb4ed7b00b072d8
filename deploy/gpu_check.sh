#!/usr/bin/env bash
# Checks the GPU backend on this machine and prints a table: check, verdict, figure, target.
#   deploy/gpu_check.sh [--only TEXT] [--budget SECONDS] [--bundle DIR] [--checks FILE] [--logs DIR]
# Runs what gpu_check_bundle collected (cmake --build build --target gpu_check_bundle), from the
# build folder or from a copy of build/gpu_check or build/gpu_check.tar.xz on any machine with an
# NVIDIA driver: it needs bash, coreutils, awk, grep and a C library no older than the bundle asks
# for (its built.txt); whole runs and the rows of torch need the machine's Python with torch, of the
# version in built.txt.
# --only    checks whose name contains TEXT
# --budget  seconds for everything (default 600); checks that do not fit are not run
# --bundle  the folder or the .tar.xz, which is unpacked under TMPDIR during the run
# --logs    folder for the commands' output (default gpu_check_logs)
# TANDEM_GPU_CHECK_MODEL: the HF checkpoint directory that whole runs train (default: the bundle's
# folder model, else random weights).
# Verdicts: met, missed (a figure against its target, or a program judged by its exit code), no target (a
# figure that is only shown), failed (exit code, signal, time), not run.
# Exits with 0 if nothing was missed or failed, something was run, and every check that the table marks
# with "!" or that has a target was run; 2: one of those was not; 1: something was missed or failed,
# or nothing run; 64: bad usage.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

usage() { awk 'NR > 1 && !/^#/ {exit} NR > 1 {sub(/^# ?/, ""); print}' "${BASH_SOURCE[0]}"; }
fail_usage() {
  printf '%s\n\nerror: %s\n' "$(usage)" "$*" >&2
  exit 64
}

only="" budget=600 bundle="" checks="" logs="gpu_check_logs"
for argument in "$@"; do
  case "$argument" in -h | --help) usage; exit 0 ;; esac
done
while (($# > 0)); do
  case "$1" in
    --only | --budget | --bundle | --checks | --logs)
      (($# > 1)) || fail_usage "$1 needs a value"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    *) fail_usage "unknown argument $1" ;;
  esac
  shift
done
[[ "$budget" =~ ^[1-9][0-9]*$ ]] || fail_usage "--budget takes seconds, not \"$budget\""
if [ -z "$bundle" ]; then
  build="${TANDEM_BUILD_DIR:-$here/../build}"
  for bundle in "$here" "$here/gpu_check.tar.xz" "$build/gpu_check" "$build/gpu_check.tar.xz"; do
    if [ -d "$bundle/bin" ] || [ -f "$bundle" ]; then break; fi
  done
fi
if [ -f "$bundle" ]; then
  unpacked="$(mktemp -d)"
  trap 'rm -rf "$unpacked"' EXIT
  tar -xf "$bundle" -C "$unpacked" 2>/dev/null || python3 -m tarfile -e "$bundle" "$unpacked" \
    || fail_usage "$bundle cannot be unpacked: it is damaged, or there is neither xz nor python3"
  bundle="$(echo "$unpacked"/*)"
fi
[ -d "$bundle" ] || fail_usage "no bundle in $bundle: build the target gpu_check_bundle, or name one"
bundle="$(cd "$bundle" && pwd)"
: "${checks:=$bundle/gpu_checks.txt}"
[ -f "$checks" ] || fail_usage "there is no table of checks at $checks"
mkdir -p "$logs"
logs="$(cd "$logs" && pwd)"

# What the bundle says of itself: built_for glibc
built_for() { awk -v key="$1" '$1 == key {print $2}' "$bundle/built.txt" 2>/dev/null || true; }
older() { [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# Why no program of the bundle runs on this machine; nothing where they do.
why_unfit() {
  local needed
  needed="$(built_for machine)"
  if [ -n "$needed" ] && [ "$needed" != "$(uname -m)" ]; then
    printf 'the bundle was built for %s, and this machine is %s' "$needed" "$(uname -m)"
    return
  fi
  needed="$(built_for glibc)"
  if [ -n "$needed" ] && older "${glibc:-0}" "$needed"; then
    printf 'the C library here is %s, and the bundle needs %s or newer: build it on a machine like this' \
      "${glibc:-of another kind}" "$needed"
  fi
}

# Three lines of the machine's Python: version of torch, its libraries, NVIDIA's beside it.
ask_python() {
  python3 - 2>/dev/null <<'PYTHON'
import importlib.util, pathlib, re
torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent
print(re.search(r"__version__ = '([^']+)'", (torch / "version.py").read_text())[1])
print(torch / "lib")
print(":".join(map(str, sorted(torch.parent.glob("nvidia/*/lib")))))
PYTHON
}

# Sets torch_is, what LibTorch is used, or torch_why, why none is; torch_libs and nvidia_libs, folders.
find_torch() {
  local found version
  torch_is="" torch_why="" torch_libs="" nvidia_libs=""
  mapfile -t found < <(ask_python || true)
  nvidia_libs="${found[2]:-}"
  if [ -d "$bundle/torch" ]; then
    torch_is="$(built_for torch), the bundle's own" torch_libs="$bundle/torch"
    return
  fi
  version="${found[0]:-}"
  if [ -z "$version" ]; then
    torch_why="python3 here has no torch"
  elif [ -n "$(built_for torch)" ] && [[ "$version" != "$(built_for torch)".* ]]; then
    torch_why="python3 here has torch $version, and the bundle needs $(built_for torch)"
  else
    torch_is="$version of python3" torch_libs="${found[1]}:$nvidia_libs"
  fi
}

# The newest symbols of a libstdc++, and its folder if the bundle's is newer than the machine's own:
# LibTorch's may be newer than the builder's.
symbols_of() { grep -aoE 'GLIBCXX_3\.4\.[0-9]+' "$1" 2>/dev/null | sort -uV | tail -n 1 || true; }
compiler_libs() {
  local ours="$bundle/lib/compiler" theirs
  [ -f "$ours/libstdc++.so.6" ] || return 0
  theirs="$(ldd "$bundle"/lib/*.so* 2>/dev/null | awk '$1 == "libstdc++.so.6" && $3 ~ "/" {print $3; exit}' || true)"
  if [ -z "$theirs" ] || older "$(symbols_of "$theirs")" "$(symbols_of "$ours/libstdc++.so.6")"; then
    printf '%s' "$ours"
  fi
}

glibc="$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{print $2}' || true)"
unfit="$(why_unfit)"
find_torch
library_path=""
for folders in "$torch_libs" "$(compiler_libs)" "${LD_LIBRARY_PATH:-}"; do
  [ -z "$folders" ] || library_path+="${library_path:+:}$folders"
done
if [ -n "${TANDEM_GPU_CHECK_MODEL:-}" ]; then
  [ -f "$TANDEM_GPU_CHECK_MODEL/config.json" ] \
    || fail_usage "TANDEM_GPU_CHECK_MODEL=$TANDEM_GPU_CHECK_MODEL is not an HF checkpoint directory"
  TANDEM_GPU_CHECK_MODEL="$(realpath "$TANDEM_GPU_CHECK_MODEL")" # programs start in the bundle
  export TANDEM_GPU_CHECK_MODEL
fi
export TANDEM_CUDA_LIBS="${TANDEM_CUDA_LIBS:-$nvidia_libs}"

declare -A code_of log_of took_of why_of  # by command
met=0 bad=0 shown_only=0 commands=0
table=() left_out=0 required_left_out=()
reasons=()          # why something did not run, in order
declare -A names_of # of the checks that a reason holds for

trim() { sed 's/^[[:space:]]*//; s/[[:space:]]*$//' <<<"$1"; }
last_line() { awk 'NF {line = $0} END {print substr(line, 1, 240)}' "$1"; }

# The line of a program's output that says that it was not even loaded.
loader_error() {
  grep -m 1 -E 'error while loading shared libraries|symbol lookup error|version .GLIBC' "$1" || true
}
# A reason that is about LibTorch, with what is wrong with the machine's.
explain() {
  local why="$1"
  if [ -n "$torch_why" ] && [[ "$why" =~ lib(torch|c10|cupti|cudart) ]]; then why="$torch_why ($why)"; fi
  printf '%s' "${why:0:240}"
}

# Runs a command once; its exit code, or why it was not run.
run_once() {
  local command="$1" limit="$2" program left log begin code=0 path="$library_path"
  [ -z "${log_of[$command]:-}" ] || return 0
  commands=$((commands + 1))
  log="$logs/$(printf '%02d' "$commands")-$(tr -c 'A-Za-z0-9._\n' '_' <<<"${command##*/}").log"
  log_of[$command]="$log"
  read -r -a words <<<"$command"
  program="${words[0]}"
  if [ "$program" = python3 ]; then program="${words[1]:-python3}" path="${LD_LIBRARY_PATH:-}"; fi
  left=$((budget - SECONDS))
  if [[ "$program" == bin/* && ! -e "$bundle/$program" ]]; then
    why_of[$command]="$program is not in the bundle"
  elif [[ -n "$unfit" && "${words[0]}" == bin/* ]]; then
    why_of[$command]="$unfit"
  elif ! command -v "${words[0]}" >/dev/null 2>&1 && [ ! -x "$bundle/${words[0]}" ]; then
    why_of[$command]="this machine has no ${words[0]}"
  elif ((left < 1)); then
    why_of[$command]="the budget of $budget s was spent"
  else
    ((limit <= left)) || limit="$left"
    printf '==> %s\n' "$command" >&2
    begin="$SECONDS"
    (cd "$bundle" && exec timeout --kill-after=2 "$limit" \
      env LD_LIBRARY_PATH="$path" bash -c "exec $command") >"$log" 2>&1 </dev/null || code=$?
    took_of[$command]=$((SECONDS - begin))
    code_of[$command]="$code"
    # 124 and 137 are what timeout itself gives where it ended the command.
    if ((code == 124 || (code == 137 && took_of[$command] >= limit))); then
      code_of[$command]="timeout $limit"
    elif ((code == 77)) && ! grep -qE ':[0-9]+: FAILED:' "$log"; then # an assertion that failed before is not a skip
      why_of[$command]="$(explain "$(last_line "$log" | sed 's/^skipped: //')")"
    elif ((code == 1 || code == 127)) && [ -n "$(loader_error "$log")" ]; then
      why_of[$command]="$(explain "$(loader_error "$log")")"
    fi
  fi
}

# value and unit of the last such figure
figure_of() { awk -v name="$2" '$1 == "figure" && $2 == name {found = $3 " " $4} END {print found}' "$1"; }
# why the program says that it did not measure it
why_not() { awk -v name="$2" '$1 == "not_run" && $2 == name {sub(/^[^ ]+ +[^ ]+ */, ""); found = $0} END {print substr(found, 1, 160)}' "$1"; }
# Whether "VALUE" meets ">= TARGET" or "<= TARGET".
meets() { awk -v v="$1" -v op="${2%% *}" -v t="${2##* }" 'BEGIN {exit !(op == ">=" ? v >= t : v <= t)}'; }

judge() {
  local name="$1" command="$2" figure="$3" target="$4" verdict shown="" why="" code
  local log="${log_of[$command]}"
  code="${code_of[$command]:-}"
  if [ -n "${why_of[$command]:-}" ]; then
    verdict="not run" why="${why_of[$command]}"
  elif [[ "$code" == timeout* ]]; then
    verdict="failed" why="took longer than ${code#timeout } s"
  elif ((code > 128)); then
    verdict="failed" why="ended by signal $((code - 128))"
  elif ((code != 0)); then
    verdict="failed" why="exit code $code: $(last_line "$log")"
  elif [ "$figure" = - ]; then
    verdict="met" shown="${took_of[$command]} s"
  else
    shown="$(figure_of "$log" "$figure")"
    why="$(why_not "$log" "$figure")"
    if [ -z "$shown" ] && [ -n "$why" ]; then
      verdict="not run"
    elif [ -z "$shown" ]; then
      verdict="failed" why="printed no figure $figure"
    elif [ "$target" = - ]; then
      verdict="no target"
    elif meets "${shown%% *}" "$target"; then
      verdict="met"
    else
      verdict="missed"
    fi
  fi
  case "$verdict" in
    met) met=$((met + 1)) ;;
    missed | failed) bad=$((bad + 1)) ;;
    "no target") shown_only=$((shown_only + 1)) ;;
    *)
      left_out=$((left_out + 1))
      # A speed that has a target and was not measured has not met it.
      [[ -z "$required" && "$target" = - ]] || required_left_out+=("$name")
      [ -n "${names_of[$why]:-}" ] || reasons+=("$why")
      names_of[$why]+="    $name"$'\n'
      ;;
  esac
  [ "$verdict" != failed ] || shown="$why"
  table+=("$(printf '%-44s %-9s %-28s %s' "$name" "$verdict" "${shown:--}" "$target")")
}

machine="$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | paste -sd';' || true)"
rows=0
while IFS='|' read -r name limit command figure target; do
  name="$(trim "$name")" required=""
  [[ -n "$name" && "$name" != \#* ]] || continue
  if [[ "$name" == !* ]]; then required=yes name="$(trim "${name#!}")"; fi
  [[ "$name" == *"$only"* ]] || continue
  command="$(trim "$command")" limit="$(trim "$limit")"
  figure="$(trim "$figure")" target="$(trim "$target")"
  [[ "$limit" =~ ^[0-9]+$ && "$target" =~ ^(-|(\>=|\<=)\ [0-9.]+)$ ]] \
    || fail_usage "$checks: a row is wrong: $name | $limit | $command | $figure | $target"
  rows=$((rows + 1))
  run_once "$command" "$limit"
  judge "$name" "$command" "$figure" "$target"
done <"$checks"
((rows > 0)) || fail_usage "no check's name contains \"$only\""

printf '\nGPU check, %s, %s; targets are for one H200\n\n' "$(date -u +%FT%TZ)" "${machine:-no GPU seen by nvidia-smi}"
printf 'bundle of commit %s; C library %s; LibTorch: %s\n\n' "$(built_for commit)" "${glibc:-unknown}" \
  "${torch_is:-none, $torch_why}"
printf '%-44s %-9s %-28s %s\n' check verdict figure target
printf '%s\n' "${table[@]}"
((left_out == 0)) || printf '\nnot run:\n'
for why in "${reasons[@]}"; do printf '  %s\n%s' "$why" "${names_of[$why]}"; done
printf '\n%d met, %d without a target, %d missed or failed, %d not run, in %d s; output of every command: %s\n' \
  "$met" "$shown_only" "$bad" "$left_out" "$SECONDS" "$logs"
((bad == 0 && met + shown_only > 0)) || exit 1
if ((${#required_left_out[@]} > 0)); then
  printf 'required checks that were not run: %s\n' \
    "$(printf '%s; ' "${required_left_out[@]}" | sed 's/; $//')"
  exit 2
fi
