// Catch2's main of the kernels' own unit tests, run on a GPU: without those that look at the
// emulator's log.
#define CATCH_CONFIG_RUNNER
#include <cstdio>

#include <catch2/catch.hpp>

#include "tests/gpu/gpu.h"
#include "tests/gpu/kernels/pinned_heap.h"

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
  return session.run();
}
