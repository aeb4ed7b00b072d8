#!/usr/bin/env bash
# Builds the test programs of this run's turn under AddressSanitizer with UndefinedBehaviorSanitizer
# ("address") and under ThreadSanitizer ("thread") and runs their tests. Over all turns every program
# is in one of each; deploy/scripts/sanitize_plan.py assigns them and prints what is left to other turns.
#   deploy/scripts/sanitize.sh [address|thread] [--show | --whole] [--seconds N]
# --show     lists all turns and the programs in none, with the reason, and builds nothing
# --whole    runs all programs, however long that takes
# --seconds  ends by then: a quarter of what is left is kept for the tests, and programs that are not built before
#            are named and not looked at. It fails where that is all of them.
# Without a name: both sanitizers, as .ci/run does. TANDEM_CI_TURN=N takes turn N, not the one drawn.
# Builds are in build-asan and build-tsan, or beside $TANDEM_BUILD_DIR, and are those of the presets asan
# and tsan in CMakePresets.json.
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
source "$ROOT/deploy/shell/build_folder.sh"
source "$ROOT/deploy/shell/timed_builds.sh"

split_values "--seconds" "$@"
set -- "${given[@]}"
usage_if_asked "$@"
sanitizers=(address thread)
case "${1:-}" in
  address | thread)
    sanitizers=("$1")
    shift
    ;;
esac
what=() limit=86400
while (($# > 0)); do
  case "$1" in
    --show | --whole) what=("$1") ;;
    --seconds)
      [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || fail_usage "--seconds takes a number from 1 on, not \"${2:-}\""
      limit="$2"
      shift
      ;;
    *) fail_usage "unknown argument $1" ;;
  esac
  shift
done

preset_of() { if [ "$1" = address ]; then printf asan; else printf tsan; fi; }
build_of() { printf '%s-%s' "$BUILD" "$(preset_of "$1")"; }

builds=()
for sanitizer in "${sanitizers[@]}"; do
  configure_build "$(preset_of "$sanitizer")" "$(build_of "$sanitizer")" >/dev/null \
    || fail "the build under the $sanitizer sanitizer cannot be configured"
  builds+=("$sanitizer=$(build_of "$sanitizer")")
done
turn="$(mktemp -d)"
trap 'rm -rf "$turn"' EXIT
python3 deploy/scripts/sanitize_plan.py "${builds[@]}" --out "$turn" "${what[@]}"
[ "${what[0]:-}" != --show ] || exit 0

export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=ignore_noninstrumented_modules=1
code=0 looked_at=0
for sanitizer in "${sanitizers[@]}"; do
  mapfile -t targets <"$turn/$sanitizer.targets"
  ((${#targets[@]} > 0)) || continue
  build="$(build_of "$sanitizer")"
  begin=$SECONDS
  build_until "$((SECONDS + (limit - SECONDS) * 3 / 4))" "$build" "${targets[@]}" \
    || fail "the build under the $sanitizer sanitizer failed"
  say "$sanitizer sanitizer: ${#built[@]} of ${#targets[@]} programs are built ($(seconds "$begin") s)"
  for target in "${targets[@]:${#built[@]}}"; do
    note "sanitizers: $sanitizer $target not looked at: it was not built within the seconds of this section"
  done
  ((${#built[@]} > 0)) || continue
  ((looked_at += ${#built[@]}))
  begin=$SECONDS
  # One line for each target, in their order.
  tests="$(head -n "${#built[@]}" "$turn/$sanitizer.tests" | paste -sd '|')"
  python3 deploy/scripts/test_verdict.py --build "$build" --jobs "$(nproc)" \
    --under "$sanitizer sanitizer" -- -R "^($tests)\$" || code=1
  say "$sanitizer sanitizer: its tests took $(seconds "$begin") s"
done
((looked_at > 0)) || fail "no program was built within $limit s, so that nothing was looked at"
exit "$code"
