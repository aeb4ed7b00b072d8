#!/usr/bin/env bash
# Builds the test programs of this run's turn under AddressSanitizer with UndefinedBehaviorSanitizer
# ("address") and under ThreadSanitizer ("thread") and runs their tests. Over all turns every program
# is in one of each; deploy/scripts/sanitize_plan.py assigns them and prints what is left to other turns.
#   deploy/scripts/sanitize.sh [address|thread] [--show | --whole]
# --show   lists all turns and the programs in none, with the reason, and builds nothing
# --whole  runs all programs, however long that takes
# Without a name: both sanitizers, as .ci/run does. TANDEM_CI_TURN=N takes turn N, not the one drawn.
# Builds are in build-asan and build-tsan, or beside $TANDEM_BUILD_DIR, and are those of the presets asan
# and tsan in CMakePresets.json.
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
source "$ROOT/deploy/shell/build_folder.sh"

usage_if_asked "$@"
sanitizers=(address thread)
case "${1:-}" in
  address | thread)
    sanitizers=("$1")
    shift
    ;;
esac
what=()
case "${1:-}" in
  "") ;;
  --show | --whole) what=("$1") ;;
  *) fail_usage "unknown argument $1" ;;
esac

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
code=0
for sanitizer in "${sanitizers[@]}"; do
  mapfile -t targets <"$turn/$sanitizer.targets"
  ((${#targets[@]} > 0)) || continue
  build="$(build_of "$sanitizer")"
  begin=$SECONDS
  ninja -C "$build" -j "$(jobs_for_build)" "${targets[@]}" \
    || fail "the build under the $sanitizer sanitizer failed"
  say "$sanitizer sanitizer: ${#targets[@]} programs are built ($(seconds "$begin") s)"
  begin=$SECONDS
  python3 deploy/scripts/test_verdict.py --build "$build" --jobs "$(nproc)" \
    --under "$sanitizer sanitizer" -- -R "$(cat "$turn/$sanitizer.tests")" || code=1
  say "$sanitizer sanitizer: its tests took $(seconds "$begin") s"
done
exit "$code"
