#!/usr/bin/env bash
# Builds unit tests under a sanitizer and runs them: those of the libraries that own memory or parse
# foreign bytes under AddressSanitizer and UndefinedBehaviorSanitizer ("address"), those of the
# libraries whose threads meet under ThreadSanitizer ("thread").
#   deploy/scripts/sanitize.sh address|thread [--seconds N]
# Exit code 77: skipped, because the build does not fit into N seconds.
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

ADDRESS_TESTS=(base_test types_test tokenizer_test chat_template_test model_spec_test
  tensor_file_test device_test comm_test weights_test config_test ops_test trainer_test
  trainer_pure_test sharded_training_test lora_test lora_training_test partial_test)
THREAD_TESTS=(comm_test weights_test controller_core_test train_loop_test ops_test)
TEST_SECONDS=600 # kept for the tests themselves

usage_if_asked "$@"
which="${1:-}"
limit=100000
case "$which" in
  address)
    build="$ROOT/build-asan"
    options=("-DTANDEM_SANITIZE=address,undefined")
    tests=("${ADDRESS_TESTS[@]}")
    export UBSAN_OPTIONS=print_stacktrace=1
    ;;
  thread)
    build="$ROOT/build-tsan"
    options=(-DTANDEM_SANITIZE=thread -DTANDEM_GRPC_STATIC=OFF)
    tests=("${THREAD_TESTS[@]}")
    export TSAN_OPTIONS="ignore_noninstrumented_modules=1:suppressions=$ROOT/deploy/tsan.supp"
    ;;
  *) fail_usage "address or thread, not \"$which\"" ;;
esac
case "${2:-}" in
  "") ;;
  --seconds) limit="${3:?seconds}" ;;
  *) fail_usage "unknown argument $2" ;;
esac

skip() {
  note "$which sanitizer: skipped, $*"
  exit 77
}

((limit >= 2 * TEST_SECONDS)) || skip "only $limit s are left"
cmake -S "$ROOT" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "${options[@]}" >/dev/null
code=0
timeout "$((limit - SECONDS - TEST_SECONDS))" \
  ninja -C "$build" -j "$(jobs_for_build)" "${tests[@]}" || code=$?
((code != 124)) || skip "the build did not end within $(seconds) s"
((code == 0)) || fail "the build under the $which sanitizer failed"
pattern="^($(
  IFS='|'
  printf '%s' "${tests[*]}"
))\$"
ctest --test-dir "$build" -R "$pattern" --output-on-failure -j "$(nproc)"
