#!/usr/bin/env bash
# Builds the unit tests of the libraries that own memory, parse foreign bytes or run threads under
# AddressSanitizer and UndefinedBehaviorSanitizer, and runs them.
#   deploy/scripts/sanitize.sh [--seconds N]
# Exit code 77: skipped, because the build does not fit into N seconds.
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

TESTS=(base_test types_test tokenizer_test chat_template_test model_spec_test tensor_file_test
  device_test comm_test weights_test config_test ops_test trainer_test sharded_training_test)
ASAN="$ROOT/build-asan"
TEST_SECONDS=600  # kept for the tests themselves

usage_if_asked "$@"
limit=100000
case "${1:-}" in
  "") ;;
  --seconds) limit="${2:?seconds}" ;;
  *) fail_usage "unknown argument $1" ;;
esac

skip() {
  note "sanitizers: skipped, $*"
  exit 77
}

((limit >= 2 * TEST_SECONDS)) || skip "only $limit s are left"
cmake -S "$ROOT" -B "$ASAN" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DTANDEM_SANITIZE=address,undefined >/dev/null
code=0
timeout "$((limit - SECONDS - TEST_SECONDS))" \
  ninja -C "$ASAN" -j "$(jobs_for_build)" "${TESTS[@]}" || code=$?
((code != 124)) || skip "the build did not end within $(seconds) s"
((code == 0)) || fail "the build under the sanitizers failed"
pattern="^($(
  IFS='|'
  printf '%s' "${TESTS[*]}"
))\$"
UBSAN_OPTIONS=print_stacktrace=1 \
  ctest --test-dir "$ASAN" -R "$pattern" --output-on-failure -j "$(nproc)"
