#include "common/device/file_region.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <catch2/catch.hpp>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/device/device_memory.h"
#include "tests/support/bytes_in.h"
#include "tests/support/temp_dir.h"
#include "tests/support/units.h"

namespace tandem {
namespace {

using testing::kMiB;

// Of a file's pages the system may write any to the disk and take it back at any moment.
constexpr int64_t kTakenBack = kMiB;

std::unique_ptr<FileRegion> CreateOrDie(const testing::TempDir& dir,
                                        int64_t bytes,
                                        Ledger* ledger) {
  auto region = FileRegion::Create("optimizer", dir.path().string(), bytes, ledger);
  INFO(region.status().ToString());
  REQUIRE(region.ok());
  return std::move(region).value();
}

}  // namespace

TEST_CASE("an offloaded region begins as zeros, has no name and is counted as a file") {
  const testing::TempDir dir;
  Ledger ledger;
  {
    const auto region = CreateOrDie(dir, 3 * kMiB + 5, &ledger);
    REQUIRE(region->bytes() == 3 * kMiB + 5);
    REQUIRE(std::all_of(region->data(), region->data() + region->bytes(),
                        [](std::byte b) { return b == std::byte{0}; }));
    REQUIRE(std::filesystem::is_empty(dir.path()));
    REQUIRE(testing::BytesIn(ledger.Snapshot(), Location::kFile) == 3 * kMiB + 5);
    REQUIRE(testing::BytesIn(ledger.Snapshot(), Location::kDevice) == 0);
  }
  REQUIRE(testing::BytesIn(ledger.Snapshot(), Location::kFile) == 0);
}

TEST_CASE("evicted pages leave the process and their values stay") {
  const testing::TempDir dir;
  const auto region = CreateOrDie(dir, 32 * kMiB, nullptr);
  memset(region->data(), 0x5a, 32 * kMiB);
  REQUIRE(region->BytesInUse() <= 32 * kMiB);
  REQUIRE(region->BytesInUse() >= 32 * kMiB - kTakenBack);
  const int64_t before = ReadProcessMemory().resident;
  region->Evict(8 * kMiB, 16 * kMiB);
  REQUIRE(region->BytesInUse() <= 16 * kMiB);
  REQUIRE(region->BytesInUse() >= 16 * kMiB - kTakenBack);
  REQUIRE(ReadProcessMemory().resident <= before - 15 * kMiB);
  region->WillNeed(8 * kMiB, 16 * kMiB);
  REQUIRE(std::all_of(region->data(), region->data() + 32 * kMiB,
                      [](std::byte b) { return b == std::byte{0x5a}; }));
}

TEST_CASE("pages that a range shares with its neighbours are not evicted") {
  const testing::TempDir dir;
  const auto region = CreateOrDie(dir, kMiB, nullptr);
  // More than once: the system may take a page back by itself, but hardly each time.
  bool whole = false;
  for (int attempt = 0; attempt < 5 && !whole; ++attempt) {
    memset(region->data(), 1, kMiB);
    region->Evict(100, 200);
    whole = region->BytesInUse() == kMiB;
  }
  REQUIRE(whole);
  region->Evict(0, region->bytes());
  REQUIRE(region->BytesInUse() == 0);
}

TEST_CASE("what cannot be offloaded is refused by tag, place and size") {
  const testing::TempDir dir;
  const auto missing = FileRegion::Create("master", (dir.path() / "no").string(), kMiB, nullptr);
  REQUIRE(missing.status().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(std::string(missing.status().message()).find("offloading master") != std::string::npos);
  REQUIRE_FALSE(FileRegion::Create("master", dir.path().string(), 0, nullptr).ok());
  // A file that may not grow stands for a disk that is full.
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{kMiB, kMiB};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto refused = FileRegion::Create("master", dir.path().string(), 2 * kMiB, nullptr);
    const std::string text(refused.status().message());
    _exit(absl::IsResourceExhausted(refused.status()) &&
                  text.find(dir.path().string()) != std::string::npos &&
                  text.find("2 MiB") != std::string::npos
              ? 0
              : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
}

}  // namespace tandem
