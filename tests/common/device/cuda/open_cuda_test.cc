#include <fstream>
#include <string>

#include <catch2/catch.hpp>

#include "common/device/cuda/cuda_api.h"

namespace tandem {
namespace {

// Whether a file of that name is part of this process.
bool IsLoaded(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find("/" + library) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a program starts without CUDA's libraries, and says what is missing when asked for it") {
  REQUIRE(IsLoaded("libstdc++.so"));
  for (const char* library : {"libcuda.so", "libcudart.so", "libcublas", "libnccl"}) {
    INFO(library);
    REQUIRE(!IsLoaded(library));
  }
  const absl::StatusOr<std::unique_ptr<CudaApi>> cuda = OpenCuda();
  if (cuda.ok()) {
    REQUIRE(*(*cuda)->DeviceCount() > 0);
  } else {
    REQUIRE(cuda.status().code() == absl::StatusCode::kFailedPrecondition);
    const std::string message(cuda.status().message());
    INFO(message);
    const bool reason = message.find("no CUDA driver") != std::string::npos ||
                        message.find("driver is too old") != std::string::npos ||
                        message.find("has no device") != std::string::npos ||
                        message.find("driver lacks") != std::string::npos ||
                        message.find("built without CUDA") != std::string::npos;
    REQUIRE(reason);
    REQUIRE(message.find("trainer.device=cpu") != std::string::npos);
    // Asking twice is no worse than asking once.
    REQUIRE(OpenCuda().status() == cuda.status());
  }
  REQUIRE(!IsLoaded("libcudart.so"));
}

}  // namespace tandem
