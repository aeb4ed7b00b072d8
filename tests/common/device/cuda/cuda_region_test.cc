#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/device/cuda/cuda_regions.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/bytes_in.h"
#include "tests/support/text.h"
#include "tests/support/units.h"

namespace tandem {
namespace {

using testing::kMiB;
using testing::Says;
using Calls = std::vector<std::string>;
using emulator::EmulatedCuda;

// A device with a context and a region of 10 MiB in chunks of 4, 4 and 2.
struct CudaRegionRig {
  explicit CudaRegionRig(emulator::EmulatedCudaOptions options = {}) : cuda(options) {
    context = *CudaContext::Create(&cuda, 0);
    region = *CudaRegion::Reserve(context.get(), "kv_cache", 9 * kMiB, &ledger,
                                  {.chunk_bytes = 4 * kMiB, .others_bytes = kMiB, .clock = &clock});
    cuda.ForgetCalls();
  }
  int64_t counted() const { return BytesOf(ledger.Snapshot(), "kv_cache"); }

  testing::FakeClock clock;
  EmulatedCuda cuda;
  Ledger ledger;
  std::unique_ptr<CudaContext> context;
  std::unique_ptr<MemoryRegion> region;
};

bool AllZero(const MemoryRegion& region) {
  return std::all_of(region.data(), region.data() + region.bytes(),
                     [](std::byte b) { return b == std::byte{0}; });
}

absl::Status InjectedFailure(absl::StatusCode code = absl::StatusCode::kInternal) {
  return absl::Status(code, "injected");
}

}  // namespace

TEST_CASE("a region of a GPU maps few large chunks and gives them back, the last one first") {
  CudaRegionRig rig;
  REQUIRE(rig.region->bytes() == 10 * kMiB);
  REQUIRE(rig.region->Map().ok());
  REQUIRE(rig.cuda.calls() == Calls{"CreatePages", "MapPages", "CreatePages", "MapPages",
                                    "CreatePages", "MapPages", "Fill"});
  REQUIRE(rig.cuda.used_bytes() == 10 * kMiB);
  REQUIRE(rig.region->ResidentBytes() == 10 * kMiB);
  rig.cuda.ForgetCalls();
  REQUIRE(rig.region->Map().ok());
  REQUIRE(rig.cuda.calls().empty());
  REQUIRE(rig.region->Release().ok());
  REQUIRE(rig.cuda.calls() == Calls{"Synchronize", "UnmapPages", "ReleasePages", "UnmapPages",
                                    "ReleasePages", "UnmapPages", "ReleasePages"});
  REQUIRE(rig.cuda.used_bytes() == 0);
  REQUIRE(rig.region->ResidentBytes() == 0);
  rig.cuda.ForgetCalls();
  REQUIRE(rig.region->Release().ok());
  REQUIRE(rig.cuda.calls().empty());
  rig.region.reset();
  REQUIRE(rig.cuda.calls() == Calls{"FreeAddresses"});
}

TEST_CASE("by default the chunks are of a GiB") {
  const int64_t room = GENERATE(int64_t{1} << 30, (int64_t{1} << 30) - 1);
  EmulatedCuda cuda({.total_bytes = room});
  const auto context = *CudaContext::Create(&cuda, 0);
  const auto region = *CudaRegion::Reserve(context.get(), "kv_cache", int64_t{60} << 30, nullptr);
  REQUIRE(region->bytes() == int64_t{60} << 30);
  cuda.ForgetCalls();
  cuda.FailCall("MapPages", InjectedFailure());  // before the emulator touches a GiB
  REQUIRE(!region->Map().ok());
  const bool fits = room == int64_t{1} << 30;
  REQUIRE(cuda.calls() ==
          (fits ? Calls{"CreatePages", "MapPages", "ReleasePages"} : Calls{"CreatePages"}));
}

TEST_CASE("addresses stay, zeros come back and nothing grows over a hundred cycles") {
  CudaRegionRig rig;
  std::byte* const address = rig.region->data();
  REQUIRE(reinterpret_cast<uintptr_t>(address) != 0);
  for (int cycle = 0; cycle < 100; ++cycle) {
    REQUIRE(rig.region->Map().ok());
    REQUIRE(rig.region->data() == address);
    REQUIRE(rig.cuda.used_bytes() == 10 * kMiB);
    REQUIRE(rig.counted() == 10 * kMiB);
    if (cycle % 25 == 0) REQUIRE(AllZero(*rig.region));
    std::memset(address + 3 * kMiB, 0x5a, 2 * kMiB);
    REQUIRE(rig.region->Release().ok());
    REQUIRE(rig.cuda.used_bytes() == 0);
    REQUIRE(rig.counted() == 0);
  }
}

TEST_CASE("the ledger counts a region as the device's, and not as resident in the process") {
  CudaRegionRig rig;
  REQUIRE(rig.region->Map().ok());
  const LedgerSnapshot snapshot = rig.ledger.Snapshot();
  REQUIRE(testing::BytesIn(snapshot, Location::kDevice) == 10 * kMiB);
  REQUIRE(snapshot.resident_bytes == 0);
  rig.region.reset();
  REQUIRE(rig.counted() == 0);
  REQUIRE(rig.cuda.used_bytes() == 0);
}

TEST_CASE("whichever call of Map fails, all is given back and the next Map works") {
  const std::string call = GENERATE(as<std::string>(), "CreatePages", "MapPages", "Fill");
  const int skipped = GENERATE(0, 1, 2);
  if (call == "Fill" && skipped > 0) return;
  CudaRegionRig rig;
  rig.cuda.FailCall(call, InjectedFailure(absl::StatusCode::kResourceExhausted), skipped);
  const absl::Status status = rig.region->Map();
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(Says(status, "kv_cache"));
  REQUIRE(Says(status, std::to_string(10 * kMiB)));
  REQUIRE(Says(status, "injected"));
  REQUIRE(!rig.region->mapped());
  REQUIRE(rig.region->ResidentBytes() == 0);
  REQUIRE(rig.cuda.used_bytes() == 0);
  REQUIRE(rig.counted() == 0);
  REQUIRE(rig.region->Map().ok());
  REQUIRE(AllZero(*rig.region));
  REQUIRE(rig.counted() == 10 * kMiB);
}

TEST_CASE("a device that is too small says what is free, and lends what fits to others") {
  CudaRegionRig rig({.total_bytes = 9 * kMiB});
  const absl::Status status = rig.region->Map();
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(Says(status, "after 8 MiB of them 1 of 9 MiB are free"));
  REQUIRE(rig.cuda.used_bytes() == 0);
  const auto other = *CudaRegion::Reserve(rig.context.get(), "weights", 8 * kMiB, nullptr);
  REQUIRE(other->Map().ok());
}

TEST_CASE("whichever call of Release fails, what is left is known and the next one ends it") {
  const std::string call = GENERATE(as<std::string>(), "UnmapPages", "ReleasePages");
  const int skipped = GENERATE(0, 1, 2);
  const bool by_map = GENERATE(false, true);
  CudaRegionRig rig;
  REQUIRE(rig.region->Map().ok());
  rig.cuda.FailCall(call, InjectedFailure(), skipped);
  const absl::Status status = rig.region->Release();
  REQUIRE(status.code() == absl::StatusCode::kInternal);
  REQUIRE(Says(status, "kv_cache"));
  REQUIRE(!rig.region->mapped());
  REQUIRE(rig.region->ResidentBytes() == rig.cuda.used_bytes());
  REQUIRE(rig.cuda.used_bytes() > 0);
  REQUIRE(rig.counted() == 10 * kMiB);
  if (by_map) {
    REQUIRE(rig.region->Map().ok());
    REQUIRE(AllZero(*rig.region));
    REQUIRE(rig.counted() == 10 * kMiB);
  }
  REQUIRE(rig.region->Release().ok());
  REQUIRE(rig.cuda.used_bytes() == 0);
  REQUIRE(rig.counted() == 0);
}

TEST_CASE("an error of the work before a release shows there, and the region stays") {
  CudaRegionRig rig;
  REQUIRE(rig.region->Map().ok());
  rig.cuda.FailCall("Synchronize", InjectedFailure());
  const absl::Status status = rig.region->Release();
  REQUIRE(status.code() == absl::StatusCode::kInternal);
  REQUIRE(Says(status, "work before it"));
  REQUIRE(rig.region->mapped());
  REQUIRE(rig.counted() == 10 * kMiB);
  REQUIRE(rig.region->Release().ok());
}

TEST_CASE("a release after which the device has no more free bytes than before is an error") {
  CudaRegionRig rig({.total_bytes = 100 * kMiB});
  const auto weights = *CudaRegion::Reserve(rig.context.get(), "weights", 6 * kMiB, &rig.ledger);
  REQUIRE(weights->Map().ok());
  REQUIRE(rig.region->Map().ok());
  const Instant start = rig.clock.Now();
  rig.cuda.HoldReleasedPages(64 * kMiB);
  const absl::Status status = rig.region->Release();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Says(status, "kv_cache"));
  REQUIRE(Says(status, std::to_string(10 * kMiB)));
  REQUIRE(Says(status, "after 2s"));
  REQUIRE(Says(status,
               "84 of 100 MiB are free, 6 MiB are in this process's ledger (weights 6 MiB)"
               ", the other 10 MiB are other processes'"));
  REQUIRE(rig.clock.Now() - start >= absl::Seconds(2));
  REQUIRE(rig.clock.Now() - start < absl::Seconds(3));
  REQUIRE(!rig.region->mapped());
  REQUIRE(rig.counted() == 0);
  rig.cuda.HoldReleasedPages(0);
  REQUIRE(rig.region->Map().ok());
  REQUIRE(rig.region->Release().ok());
}

TEST_CASE("a device that says late that released bytes are free is waited for") {
  CudaRegionRig rig;
  REQUIRE(rig.region->Map().ok());
  rig.cuda.HoldReleasedPages(64 * kMiB);
  int looks = 0;
  rig.clock.OnSleep([&] {
    if (++looks == 3) rig.cuda.HoldReleasedPages(0);
  });
  REQUIRE(rig.region->Release().ok());
  REQUIRE(looks == 3);
  REQUIRE(rig.cuda.used_bytes() == 0);
  // Nothing is waited for where nothing is missing.
  REQUIRE(rig.region->Map().ok());
  REQUIRE(rig.region->Release().ok());
  REQUIRE(looks == 3);
}

TEST_CASE("a device that cannot say what is free fails the release at once, which is done") {
  CudaRegionRig rig;
  REQUIRE(rig.region->Map().ok());
  rig.cuda.FailCall("FreeBytes", InjectedFailure(), 1);  // the first look is before the release
  REQUIRE(Says(rig.region->Release(), "injected"));
  REQUIRE(rig.region->ResidentBytes() == 0);
  REQUIRE(rig.cuda.used_bytes() == 0);
  REQUIRE(rig.counted() == 0);
  REQUIRE(rig.region->Map().ok());
}

TEST_CASE("what others take while a region is released is not an error up to a limit") {
  testing::FakeClock clock;
  EmulatedCuda cuda;
  const auto context = *CudaContext::Create(&cuda, 0);
  const auto release = [&](int64_t allowed, int64_t taken) {
    const CudaRegionOptions options = {
        .chunk_bytes = 2 * kMiB, .others_bytes = allowed, .clock = &clock};
    const auto region = *CudaRegion::Reserve(context.get(), "weights", 8 * kMiB, nullptr, options);
    REQUIRE(region->Map().ok());
    cuda.HoldReleasedPages(taken);
    return region->Release();
  };
  REQUIRE(release(2 * kMiB, 2 * kMiB).ok());
  const absl::Status status = release(2 * kMiB, 3 * kMiB);
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Says(status, "misses 3145728 (3 MiB)"));
  // Never more than half of what is released.
  REQUIRE(release(64 * kMiB, 4 * kMiB).ok());
  REQUIRE(!release(64 * kMiB, 5 * kMiB).ok());
}

TEST_CASE("a region that cannot be is refused, and leaves nothing") {
  EmulatedCuda cuda;
  const auto context = *CudaContext::Create(&cuda, 0);
  const auto reserve = [&](int64_t bytes) {
    return CudaRegion::Reserve(context.get(), "weights", bytes, nullptr).status();
  };
  REQUIRE(reserve(0).code() == absl::StatusCode::kInvalidArgument);
  cuda.FailCall("ReserveAddresses", InjectedFailure());
  REQUIRE(Says(reserve(kMiB), "weights"));
  EmulatedCuda old({.virtual_memory = false});
  const auto old_context = *CudaContext::Create(&old, 0);
  const absl::Status status =
      CudaRegion::Reserve(old_context.get(), "weights", kMiB, nullptr).status();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Says(status, "trainer.device=cpu"));
  REQUIRE(cuda.used_bytes() == 0);
}

}  // namespace tandem
