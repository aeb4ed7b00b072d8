// A trainer on a device that does not report released memory as free.
#include <catch2/catch.hpp>

#include "common/device/cuda/cuda_regions.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/fakes/fake_clock.h"
#include "trainer_worker/shard/shard_array.h"

namespace tandem {

TEST_CASE("memory that a partner takes while a trainer gives its own back is not an error",
          "[trainer][cuda]") {
  constexpr int64_t kBytes = int64_t{8} << 20;
  testing::FakeClock clock;
  emulator::EmulatedCuda cuda;
  const auto context = CudaContext::Create(&cuda, 0).value();
  const auto region =
      CudaRegion::Reserve(context.get(), "gather", kBytes, nullptr, {.clock = &clock}).value();
  REQUIRE(region->Map().ok());
  cuda.HoldReleasedPages(kBytes);
  REQUIRE(LogReleaseFailure(region->Release()).ok());
  REQUIRE(!region->mapped());
  REQUIRE(region->ResidentBytes() == 0);
  // What fails otherwise does.
  cuda.HoldReleasedPages(0);
  REQUIRE(region->Map().ok());
  cuda.FailCall("UnmapPages", absl::InternalError("injected"));
  REQUIRE(absl::IsInternal(LogReleaseFailure(region->Release())));
  REQUIRE(LogReleaseFailure(region->Release()).ok());
  REQUIRE(cuda.used_bytes() == 0);
}

}  // namespace tandem
