#include "controller/store/disk/disk_wait.h"

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/disk_refusal.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;

absl::Status DiskFull() {
  return WithDiskRefused(absl::ResourceExhaustedError("run.db: No space left on device"));
}

// A disk that takes nothing until it is `mended_at`, and a run that can be ended.
struct RefusingDisk {
  absl::Status Write() {
    attempts.push_back(clock.Now());
    if (std::exchange(refused_once, false)) return refusal;
    return clock.Now() < mended_at ? refusal : absl::OkStatus();
  }
  absl::Status Wait() {
    return wait.Until({.what = "samples", .folder = "/", .bytes = (5 << 20) + 1},
                      [this] { return Write(); });
  }

  testing::FakeClock clock;
  absl::Status refusal = DiskFull();
  Instant mended_at = clock.Now();
  bool refused_once = false;
  bool ended = false;
  std::vector<Instant> attempts;
  std::vector<std::string> told;
  std::optional<int64_t> free_bytes = int64_t{1} << 30;
  DiskWait wait{clock,
                {.retry_every = absl::Seconds(10),
                 .ended = [this] { return ended; },
                 .tell = [this](const std::string& text) { told.push_back(text); },
                 .free_bytes = [this](const std::string&) { return free_bytes; }}};
};

}  // namespace

TEST_CASE("What a disk takes is written once, without a word", "[disk_wait]") {
  RefusingDisk disk;
  REQUIRE(disk.Wait().ok());
  REQUIRE(disk.attempts.size() == 1);
  REQUIRE(disk.told.empty());
  REQUIRE(disk.wait.waits_for().empty());
}

TEST_CASE("A full disk is tried again at the interval, on the run's clock, until there is space",
          "[disk_wait]") {
  RefusingDisk disk;
  const Instant begin = disk.clock.Now();
  disk.mended_at = begin + absl::Seconds(25);
  std::string shown;
  disk.clock.OnSleep([&] { shown = disk.wait.waits_for(); });
  REQUIRE(disk.Wait().ok());
  REQUIRE(disk.attempts == std::vector<Instant>{begin, begin + absl::Seconds(10),
                                                begin + absl::Seconds(20),
                                                begin + absl::Seconds(30)});
  REQUIRE(disk.told.size() == 2);
  REQUIRE(Has(disk.told[0], "no space on / for samples: 6 MiB needed, "));
  REQUIRE(Has(disk.told[0], "No space left on device"));
  REQUIRE(Has(disk.told[1], "the run continues"));
  REQUIRE(shown == disk.told[0]);
  REQUIRE(disk.wait.waits_for().empty());
}

TEST_CASE("A disk without the space that is needed is not filled again and again", "[disk_wait]") {
  RefusingDisk disk;
  const Instant begin = disk.clock.Now();
  disk.mended_at = begin;
  disk.refused_once = true;
  disk.free_bytes = 5 << 20;  // a byte too few
  disk.clock.OnSleep([&] {
    if (disk.clock.Now() >= begin + absl::Seconds(25)) disk.free_bytes = (5 << 20) + 1;
  });
  REQUIRE(disk.Wait().ok());
  REQUIRE(disk.attempts == std::vector<Instant>{begin, begin + absl::Seconds(30)});
}

TEST_CASE("A disk is tried once a minute where more space is expected to be needed",
          "[disk_wait]") {
  RefusingDisk disk;
  const Instant begin = disk.clock.Now();
  disk.mended_at = begin + absl::Seconds(70);
  disk.free_bytes = 0;
  REQUIRE(disk.Wait().ok());
  REQUIRE(disk.attempts ==
          std::vector<Instant>{begin, begin + absl::Seconds(60), begin + absl::Seconds(120)});
  // A disk that fails says nothing by what it has free.
  disk.refusal = WithDiskRefused(absl::DataLossError("Input/output error"));
  disk.attempts.clear();
  disk.mended_at = disk.clock.Now() + absl::Seconds(5);
  REQUIRE(disk.Wait().ok());
  REQUIRE(disk.attempts.size() == 2);
}

TEST_CASE("Waits are added up", "[disk_wait]") {
  RefusingDisk disk;
  REQUIRE(disk.Wait().ok());
  REQUIRE(disk.wait.waited() == absl::ZeroDuration());
  for (int i = 0; i < 2; ++i) {
    disk.mended_at = disk.clock.Now() + absl::Seconds(15);
    REQUIRE(disk.Wait().ok());
  }
  REQUIRE(disk.wait.waited() == absl::Seconds(40));
}

TEST_CASE("A disk that fails is waited for, and named as one", "[disk_wait]") {
  RefusingDisk disk;
  disk.refusal = WithDiskRefused(absl::DataLossError("Input/output error"));
  disk.mended_at = disk.clock.Now() + absl::Seconds(1);
  REQUIRE(disk.Wait().ok());
  REQUIRE(Has(disk.told.at(0), "whose disk fails"));
}

TEST_CASE("A user's stop ends the wait with the disk's error", "[disk_wait]") {
  RefusingDisk disk;
  disk.mended_at = Instant::InfiniteFuture();
  int sleeps = 0;
  disk.clock.OnSleep([&] { disk.ended = ++sleeps == 7; });
  const absl::Status status = disk.Wait();
  REQUIRE(absl::IsResourceExhausted(status));
  REQUIRE(IsDiskRefused(status));
  REQUIRE(Has(std::string(status.message()), "stopped while it waited"));
  REQUIRE(disk.attempts.size() == 1);
  REQUIRE(disk.wait.waits_for().empty());
  // Afterwards nothing waits.
  REQUIRE(IsDiskRefused(disk.Wait()));
  REQUIRE(disk.attempts.size() == 2);
}

TEST_CASE("Other errors are returned at once", "[disk_wait]") {
  RefusingDisk disk;
  disk.mended_at = Instant::InfiniteFuture();
  disk.refusal = absl::ResourceExhaustedError("File too large");
  REQUIRE(disk.Wait() == disk.refusal);
  REQUIRE(disk.attempts.size() == 1);
  REQUIRE(WaitingMayHelp(ENOSPC));
  REQUIRE(WaitingMayHelp(EDQUOT));
  REQUIRE(WaitingMayHelp(EIO));
  REQUIRE(WaitingMayHelp(EROFS));
  REQUIRE(WaitingMayHelp(ESTALE));
  REQUIRE_FALSE(WaitingMayHelp(EFBIG));
}

}  // namespace tandem
