#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>

#include "common/comm/cuda/nccl_api.h"

namespace tandem {

TEST_CASE("NCCL is opened with its sums pinned only, and what was set for them is replaced") {
  setenv("NCCL_ALGO", "Tree", 1);
  unsetenv("NCCL_PROTO");
  const absl::Status refused = OpenNccl().status();
  REQUIRE(absl::IsFailedPrecondition(refused));
  PinNcclSums();
  REQUIRE(CheckNcclSumsPinned().ok());
  REQUIRE(std::getenv("NCCL_ALGO") == std::string("Ring"));
  REQUIRE(std::getenv("NCCL_PROTO") == std::string("Simple"));
  setenv("NCCL_PROTO", "LL", 1);
  REQUIRE(std::string(CheckNcclSumsPinned().message()).find("NCCL_PROTO is not Simple") == 0);
  PinNcclSums();
}

TEST_CASE("the machine's NCCL is opened, or it is said why not") {
  PinNcclSums();
  const auto nccl = OpenNccl();
  if (!nccl.ok()) {
    INFO(nccl.status().ToString());
    REQUIRE(nccl.status().code() == absl::StatusCode::kFailedPrecondition);
    return;
  }
  REQUIRE((*nccl)->version() >= 21400);
}

}  // namespace tandem
