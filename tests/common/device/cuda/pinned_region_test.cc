#include <cstring>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/device/cuda/cuda_regions.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/support/bytes_in.h"
#include "tests/support/units.h"

namespace tandem {
namespace {

using testing::kMiB;
using Calls = std::vector<std::string>;
using emulator::EmulatedCuda;

struct PinnedRegionRig {
  PinnedRegionRig() {
    context = *CudaContext::Create(&cuda, 0);
    region = *PinnedRegion::Reserve(context.get(), "optimizer", 5 * kMiB, &ledger);
    cuda.ForgetCalls();
  }

  EmulatedCuda cuda;
  Ledger ledger;
  std::unique_ptr<CudaContext> context;
  std::unique_ptr<MemoryRegion> region;
};

absl::Status NoPinnedMemory() {
  return absl::Status(absl::StatusCode::kResourceExhausted, "injected");
}

}  // namespace

TEST_CASE("a pinned region is host memory that the driver holds while it is mapped") {
  PinnedRegionRig rig;
  std::byte* const address = rig.region->data();
  for (int cycle = 0; cycle < 3; ++cycle) {
    REQUIRE(rig.region->Map().ok());
    REQUIRE(rig.region->Map().ok());
    REQUIRE(rig.region->data() == address);
    REQUIRE(rig.region->bytes() == 6 * kMiB);
    REQUIRE(address[6 * kMiB - 1] == std::byte{0});
    std::memset(address, 1, 6 * kMiB);
    REQUIRE(testing::BytesIn(rig.ledger.Snapshot(), Location::kHost) == 6 * kMiB);
    REQUIRE(rig.region->ResidentBytes() == 6 * kMiB);
    REQUIRE(rig.region->Release().ok());
    REQUIRE(rig.region->Release().ok());
    REQUIRE(testing::BytesIn(rig.ledger.Snapshot(), Location::kHost) == 0);
    REQUIRE(rig.region->ResidentBytes() == 0);
    REQUIRE(rig.cuda.calls() == Calls{"RegisterHost", "Synchronize", "UnregisterHost"});
    rig.cuda.ForgetCalls();
  }
  REQUIRE(rig.region->Map().ok());
  rig.region.reset();
  REQUIRE(rig.cuda.calls() == Calls{"RegisterHost", "Synchronize", "UnregisterHost"});
}

TEST_CASE("memory that cannot be pinned is given back") {
  PinnedRegionRig rig;
  rig.cuda.FailCall("RegisterHost", NoPinnedMemory());
  const absl::Status status = rig.region->Map();
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(std::string(status.message()).find("optimizer: cannot pin 6291456 bytes") !=
          std::string::npos);
  REQUIRE(!rig.region->mapped());
  REQUIRE(testing::BytesIn(rig.ledger.Snapshot(), Location::kHost) == 0);
  REQUIRE(rig.region->Map().ok());
}

TEST_CASE("a pinned region that cannot be released stays as it is") {
  const std::string call = GENERATE(as<std::string>(), "Synchronize", "UnregisterHost");
  PinnedRegionRig rig;
  REQUIRE(rig.region->Map().ok());
  rig.region->data()[5] = std::byte{9};
  rig.cuda.FailCall(call, NoPinnedMemory());
  REQUIRE(rig.region->Release().code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(rig.region->mapped());
  REQUIRE(rig.region->data()[5] == std::byte{9});
  REQUIRE(rig.region->Release().ok());
}

TEST_CASE("what sleeps in a pinned region wakes up with the same bytes at the same address") {
  PinnedRegionRig rig;
  const auto device = *CudaRegion::Reserve(rig.context.get(), "weights", 6 * kMiB, &rig.ledger);
  REQUIRE(device->Map().ok());
  std::byte* const address = device->data();
  for (int64_t i = 0; i < 6 * kMiB; i += 4096) address[i] = static_cast<std::byte>(i >> 12);
  REQUIRE(rig.region->Map().ok());
  rig.context->Copy(rig.region->data(), device->data(), 6 * kMiB);
  REQUIRE(device->Release().ok());
  REQUIRE(rig.cuda.used_bytes() == 0);
  REQUIRE(device->Map().ok());
  rig.context->Copy(device->data(), rig.region->data(), 6 * kMiB);
  REQUIRE(rig.region->Release().ok());
  REQUIRE(device->data() == address);
  for (int64_t i = 0; i < 6 * kMiB; i += 4096) {
    REQUIRE(address[i] == static_cast<std::byte>(i >> 12));
  }
}

}  // namespace tandem
