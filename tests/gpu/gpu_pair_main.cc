// Catch2's main of a program that needs a GPU and starts itself as the other process of a pair:
// every process opens the driver anew.
#define CATCH_CONFIG_RUNNER
#include <cstdio>
#include <string>

#include <catch2/catch.hpp>

#include "tests/common/weights/pair_peer.h"
#include "tests/gpu/gpu.h"

int main(int argc, char** argv) {
  if (argc > 1 && argv[1] == std::string("--peer")) {
    return tandem::testing::RunPairPeer(argc - 2, argv + 2);
  }
  const auto gpu = tandem::testing::OpenGpu();
  if (!gpu.ok()) {
    std::printf("no GPU: %s\n", std::string(gpu.status().message()).c_str());
    return tandem::testing::kNoGpu;
  }
  return Catch::Session().run(argc, argv);
}
