// Catch2's main of a program that needs a GPU.
#define CATCH_CONFIG_RUNNER
#include <cstdio>

#include <catch2/catch.hpp>

#include "tests/gpu/gpu.h"

namespace tandem::testing {
namespace {

int tests = 0, tests_not_run = 0;
std::string last_reason;

struct Counter : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo& /*info*/) override { ++tests; }
};
CATCH_REGISTER_LISTENER(Counter)

}  // namespace

void NotRun(const std::string& why) {
  ++tests_not_run;
  last_reason = why;
  std::printf("not run: %s\n", why.c_str());
  SUCCEED("not run: " << why);  // a test without an assertion would fail with --warn NoAssertions
}

}  // namespace tandem::testing

int main(int argc, char** argv) {
  using tandem::testing::kNoGpu;
  using tandem::testing::tests;
  const auto gpu = tandem::testing::OpenGpu();
  if (!gpu.ok()) {
    std::printf("no GPU: %s\n", std::string(gpu.status().message()).c_str());
    return kNoGpu;
  }
  const int code = Catch::Session().run(argc, argv);
  if (code == 0 && tests > 0 && tests == tandem::testing::tests_not_run) {
    return tandem::testing::Skipped(tandem::testing::last_reason);
  }
  return code;
}
