#include "common/device/shared_region.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <unistd.h>

#include "common/device/device_memory.h"
#include "tests/support/units.h"

namespace tandem {
namespace {

using testing::kMiB;

// Of what the process takes by itself. ThreadSanitizer keeps four bytes about each byte of a
// mapping that it saw.
#ifdef _GLIBCXX_TSAN
constexpr int64_t kSlack = 1024 * kMiB;
#else
constexpr int64_t kSlack = 2 * kMiB;
#endif

UniqueFd Passed(const SharedRegion& region) { return UniqueFd(dup(region.fd())); }

}  // namespace

TEST_CASE("what one side writes the other reads, and the owner alone counts it") {
  for (const auto pages : {SharedRegion::Pages::kSmall, SharedRegion::Pages::kHuge}) {
    Ledger owner, guest;
    const LedgerSnapshot before = guest.Snapshot();
    {
      const auto region =
          SharedRegion::Create("weights", 64 * kMiB - 5, &owner, Location::kDevice, pages);
      REQUIRE(region.ok());
      REQUIRE((*region)->bytes() == 64 * kMiB);
      REQUIRE(std::all_of((*region)->data(), (*region)->data() + (*region)->bytes(),
                          [](std::byte b) { return b == std::byte{0}; }));
      const LedgerSnapshot owned = owner.Snapshot();
      REQUIRE(BytesOf(owned, "weights") == 64 * kMiB);
      REQUIRE(owned.resident_bytes == 64 * kMiB);
      REQUIRE(std::abs(owned.unaccounted_bytes()) < kSlack);

      const auto mapped = SharedRegion::MapForeign(Passed(**region), 64 * kMiB, &guest);
      REQUIRE(mapped.ok());
      memset((*region)->data(), 7, static_cast<size_t>((*region)->bytes()));
      REQUIRE(std::all_of((*mapped)->data(), (*mapped)->data() + (*mapped)->bytes(),
                          [](std::byte b) { return b == std::byte{7}; }));
      const LedgerSnapshot mapping = guest.Snapshot();
      REQUIRE(mapping.entries.empty());
      // The owner's mapping lies in this process too; the guest's comes on top and is left out.
      REQUIRE(mapping.process_bytes < before.process_bytes + 64 * kMiB + kSlack);
      REQUIRE(mapping.process_peak_bytes < before.process_peak_bytes + 64 * kMiB + kSlack);
    }
    REQUIRE(owner.Snapshot().memory_bytes == 0);
    REQUIRE(guest.Snapshot().process_bytes < before.process_bytes + kSlack);
    // What was foreign came out of the peak, the owner's part of this process stays in it.
    REQUIRE(guest.Snapshot().process_peak_bytes >= before.process_bytes + 64 * kMiB - kSlack);
    REQUIRE(guest.Snapshot().process_peak_bytes < before.process_peak_bytes + 64 * kMiB + kSlack);
  }
}

TEST_CASE("no snapshot sees a foreign mapping half made") {
  const auto region = SharedRegion::Create("weights", 64 * kMiB, nullptr, Location::kDevice,
                                           SharedRegion::Pages::kSmall);
  REQUIRE(region.ok());
  Ledger ledger;
  std::atomic<bool> done = false;
  std::thread mapper([&] {
    for (int i = 0; i < 50; ++i) {
      REQUIRE(SharedRegion::MapForeign(Passed(**region), 64 * kMiB, &ledger).ok());
    }
    done = true;
  });
  // From one snapshot to the next: what the process itself takes grows by and by, above all under a
  // sanitizer that keeps freed memory, and half a mapping shows as a step.
  int64_t last = ledger.Snapshot().process_bytes, step = 0;
  do {
    const int64_t now = ledger.Snapshot().process_bytes;
    step = std::max(step, std::abs(now - last));
    last = now;
  } while (!done);
  mapper.join();
  REQUIRE(step < 32 * kMiB);
}

TEST_CASE("a descriptor that could shrink, or has too few bytes, is not mapped") {
  const auto region = SharedRegion::Create("weights", kMiB, nullptr, Location::kDevice,
                                           SharedRegion::Pages::kSmall);
  REQUIRE(region.ok());
  Ledger ledger;
  const auto larger = SharedRegion::MapForeign(Passed(**region), 2 * kMiB, &ledger);
  REQUIRE(larger.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(SharedRegion::MapForeign(UniqueFd(open("/dev/zero", O_RDWR)), kMiB, &ledger)
              .status()
              .code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::abs(ledger.Snapshot().process_bytes - ReadProcessMemory().resident) < kSlack);
}

TEST_CASE("shared memory that the machine lacks is refused by name") {
  const auto refused = SharedRegion::Create("weights", int64_t{1} << 50, nullptr, Location::kDevice,
                                            SharedRegion::Pages::kHuge);
  REQUIRE(absl::IsResourceExhausted(refused.status()));
  REQUIRE(std::string(refused.status().message()).find("weights") != std::string::npos);
}

}  // namespace tandem
