#!/usr/bin/env bash
# Builds the test programs of today's turn under AddressSanitizer with UndefinedBehaviorSanitizer
# ("address") and under ThreadSanitizer ("thread") and runs their tests. Over all turns every program
# is in one of each; deploy/scripts/sanitize_plan.py deals them and says what is left to other turns.
#   deploy/scripts/sanitize.sh [address|thread] [--show | --whole]
# --show   lists all turns and what is in none, with the reason, and builds nothing
# --whole  takes all programs, however long that is
# Without a name: both sanitizers, as .ci/run does. TANDEM_CI_TURN=N takes turn N, not today's.
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

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

build_of() { if [ "$1" = address ]; then printf '%s' "$ROOT/build-asan"; else printf '%s' "$ROOT/build-tsan"; fi; }
# A type of build of its own: -O2 takes twice as long under AddressSanitizer and finds no more.
configure() {
  local options=("-DTANDEM_SANITIZE=address,undefined")
  [ "$1" = address ] || options=(-DTANDEM_SANITIZE=thread -DTANDEM_GRPC_STATIC=OFF)
  cmake -S "$ROOT" -B "$(build_of "$1")" -G Ninja -DCMAKE_BUILD_TYPE=Sanitized \
    "-DCMAKE_C_FLAGS_SANITIZED=-O1 -g1" "-DCMAKE_CXX_FLAGS_SANITIZED=-O1 -g1" "${options[@]}" >/dev/null \
    || fail "the build under the $1 sanitizer cannot be configured"
}

builds=()
for sanitizer in "${sanitizers[@]}"; do
  configure "$sanitizer"
  builds+=("$sanitizer=$(build_of "$sanitizer")")
done
turn="$(mktemp -d)"
trap 'rm -rf "$turn"' EXIT
python3 deploy/scripts/sanitize_plan.py "${builds[@]}" --out "$turn" "${what[@]}"
[ "${what[0]:-}" != --show ] || exit 0

export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="ignore_noninstrumented_modules=1:suppressions=$ROOT/deploy/tsan.supp"
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
