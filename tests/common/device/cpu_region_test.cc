#include <algorithm>
#include <cstring>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "common/device/device.h"
#include "common/device/device_memory.h"
#include "tests/support/units.h"

namespace tandem {
namespace {

using testing::kMiB;

std::unique_ptr<MemoryRegion> ReserveOrDie(const std::string& tag, int64_t bytes, Ledger* ledger) {
  auto region = HostDevice()->Reserve(tag, bytes, ledger);
  REQUIRE(region.ok());
  return std::move(region).value();
}

bool AllZero(const MemoryRegion& region) {
  return std::all_of(region.data(), region.data() + region.bytes(),
                     [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

TEST_CASE("a region keeps its address and comes back zeroed over many cycles") {
  Ledger ledger;
  const auto region = ReserveOrDie("kv_cache", 5 * kMiB, &ledger);
  REQUIRE(region->bytes() == 6 * kMiB);
  REQUIRE(reinterpret_cast<uintptr_t>(region->data()) % (2 * kMiB) == 0);
  REQUIRE(BytesOf(ledger.Snapshot(), "kv_cache") == 0);
  std::byte* const address = region->data();
  for (int cycle = 0; cycle < 20; ++cycle) {
    REQUIRE(region->Map().ok());
    REQUIRE(region->data() == address);
    REQUIRE(AllZero(*region));
    memset(region->data(), 0x5a, region->bytes());
    REQUIRE(BytesOf(ledger.Snapshot(), "kv_cache") == 6 * kMiB);
    REQUIRE(region->Release().ok());
    REQUIRE(BytesOf(ledger.Snapshot(), "kv_cache") == 0);
  }
}

TEST_CASE("release returns the memory to the system") {
  const auto region = ReserveOrDie("weights", 64 * kMiB, nullptr);
  REQUIRE(region->Map().ok());
  const int64_t before = ReadProcessMemory().resident;
  memset(region->data(), 1, region->bytes());
  REQUIRE(region->ResidentBytes() == 64 * kMiB);
  REQUIRE(ReadProcessMemory().resident >= before + 60 * kMiB);
  REQUIRE(region->Release().ok());
  REQUIRE(region->ResidentBytes() == 0);
  REQUIRE(ReadProcessMemory().resident <= before + 4 * kMiB);
}

TEST_CASE("map and release may be repeated") {
  Ledger ledger;
  {
    const auto region = ReserveOrDie("gather", 1, &ledger);
    REQUIRE(region->Release().ok());
    REQUIRE(region->Map().ok());
    region->data()[0] = std::byte{9};
    REQUIRE(region->Map().ok());
    REQUIRE(region->data()[0] == std::byte{9});
    REQUIRE(BytesOf(ledger.Snapshot(), "gather") == 2 * kMiB);
  }
  REQUIRE(BytesOf(ledger.Snapshot(), "gather") == 0);
}

TEST_CASE("a released region cannot be touched") {
  const auto region = ReserveOrDie("weights", kMiB, nullptr);
  REQUIRE(region->Map().ok());
  REQUIRE(region->Release().ok());
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    *const_cast<volatile std::byte*>(region->data()) = std::byte{1};
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(!(WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("a region that the machine cannot give is refused by tag and size") {
  const int64_t too_much = MemoryLimitBytes() + 64 * kMiB;
  const auto region = ReserveOrDie("optimizer", too_much, nullptr);
  const absl::Status status = region->Map();
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(std::string(status.message()).find("optimizer") != std::string::npos);
  REQUIRE(std::string(status.message()).find(std::to_string(region->bytes())) != std::string::npos);
  REQUIRE(!region->mapped());
  REQUIRE(HostDevice()->Reserve("x", 0, nullptr).status().code() ==
          absl::StatusCode::kInvalidArgument);
  REQUIRE(HostDevice()->Reserve("x", int64_t{1} << 60, nullptr).status().code() ==
          absl::StatusCode::kResourceExhausted);
}

}  // namespace tandem
