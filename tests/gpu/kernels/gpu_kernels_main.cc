// Catch2's main of the kernels' own unit tests, run on a GPU: without those that look at the
// emulator's log.
#define CATCH_CONFIG_RUNNER
#include <cstdio>
#include <cstdlib>

#include <catch2/catch.hpp>

#include "tests/gpu/gpu.h"
#include "tests/gpu/kernels/pinned_heap.h"

namespace {

// Ends the program where a test has left a device on which nothing runs any more: every test
// after it would fail, and none would say why.
struct DeviceWatch : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    const std::string error = tandem::testing::DeviceError();
    if (error.empty()) return;
    std::printf("the device was lost in \"%s\": %s\n", stats.testInfo.name.c_str(), error.c_str());
    std::fflush(stdout);
    std::_Exit(1);
  }
};
CATCH_REGISTER_LISTENER(DeviceWatch)

}  // namespace

int main(int argc, char** argv) {
  // Before the driver is asked for anything: it reads its variables when it starts.
  if (tandem::testing::kBlockingLaunches) setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  const auto gpu = tandem::testing::OpenGpu();
  if (!gpu.ok()) {
    std::printf("no GPU: %s\n", std::string(gpu.status().message()).c_str());
    return tandem::testing::kNoGpu;
  }
  tandem::testing::UsePinnedHeap();
  Catch::Session session;
  if (const int code = session.applyCommandLine(argc, argv); code != 0) return code;
  if (session.configData().testsOrTags.empty()) {
    session.configData().testsOrTags = {"~[emulator]"};
  }
  return tandem::testing::RunOnPinnedStack([&session] { return session.run(); });
}
