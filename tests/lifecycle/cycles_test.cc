// A pair goes through a hundred steps and holds as much memory after each as before it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include <catch2/catch.hpp>
#include <malloc.h>
#include <unistd.h>

#include "tests/lifecycle/worker_pair.h"

namespace tandem {
namespace {

using namespace tandem::testing;

constexpr int64_t kCycles = 100;
constexpr int64_t kWarmUp = 10;  // cycles until every buffer that stays has its size
// AddressSanitizer keeps 256 MiB of what was freed, and needs memory to describe it. A mapping of
// each cycle that stayed would still be more.
#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kQuarantineBytes = 384 << 20;
constexpr bool kCountOnlyNamed = true;
#else
constexpr int64_t kQuarantineBytes = 0;
constexpr bool kCountOnlyNamed = false;
#endif
// ThreadSanitizer maps what it knows of memory piece by piece, the more the longer a process runs:
// its memory does not tell whether the program's grows.
#ifdef _GLIBCXX_TSAN
constexpr bool kShadowed = true;
#else
constexpr bool kShadowed = false;
#endif
// How much gRPC's heap and the allocator may vary; a cycle maps and releases 11 MiB.
constexpr int64_t kSlackBytes = (4 << 20) + kQuarantineBytes;

// With float32 weights cross through slots, with bf16 the rollout reads the trainer's shard.
void SyncCycle(WorkerPair& pair, int64_t version) {
  REQUIRE(pair.Sync(version).direct == (pair.options.dtype == DType::kBFloat16));
}

// A step from `version` to the next.
void StepCycle(WorkerPair& pair, int64_t version, int sleep_level) {
  pair.stream.samples = pair.Generate(version);
  REQUIRE(Sleep(*pair.engine, {.level = sleep_level}).ok());
  pair.Train(version);
  SyncCycle(pair, version + 1);
}

// Bytes of both workers by tag and location.
std::map<std::pair<std::string, Location>, int64_t> SumLedgers(WorkerPair& pair) {
  std::map<std::pair<std::string, Location>, int64_t> sums;
  for (Ledger* ledger : {&pair.engine->ledger(), &pair.trainer->ledger()}) {
    for (const LedgerEntry& entry : ledger->Snapshot().entries) {
      sums[{entry.tag, entry.location}] += entry.current_bytes;
    }
  }
  return sums;
}

int64_t ResidentBytes() {
  malloc_trim(0);  // what the heap holds free is not growth
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t Descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return std::distance(begin(open), end(open));
}

// Those of memory that processes share have a name, and those that AddressSanitizer's allocator
// adds now and then have none.
int64_t Mappings() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    const bool named = line.find('/') != std::string::npos;
    if (named || !kCountOnlyNamed) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE(
    "M2: a hundred steps with sleep levels 1 and 2 in turn grow neither ledger, memory nor "
    "descriptors") {
  WorkerPair pair({.dtype = GENERATE(DType::kBFloat16, DType::kFloat32)});
  SyncCycle(pair, 0);
  for (int64_t cycle = 0; cycle < kWarmUp; ++cycle) StepCycle(pair, cycle, 1 + cycle % 2);
  const auto held = SumLedgers(pair);
  const int64_t resident = ResidentBytes();
  const int64_t descriptors = Descriptors(), mappings = Mappings();
  const std::byte* const weights_at = FindMemory(*pair.engine).weights;
  const std::byte* const kv_at = FindMemory(*pair.engine).kv;
  for (int64_t cycle = kWarmUp; cycle < kWarmUp + kCycles; ++cycle) {
    INFO("cycle " << cycle);
    StepCycle(pair, cycle, 1 + cycle % 2);
    REQUIRE(SumLedgers(pair) == held);
    REQUIRE(FindMemory(*pair.engine).weights == weights_at);
    REQUIRE(FindMemory(*pair.engine).kv == kv_at);
  }
  REQUIRE(pair.trainer->status().version == kWarmUp + kCycles);
  INFO(fmt::format("resident {} before, {} after; descriptors {} and {}; mappings {} and {}",
                   resident, ResidentBytes(), descriptors, Descriptors(), mappings, Mappings()));
  // Not one a cycle: gRPC closes a connection some time after its last use.
  REQUIRE(Descriptors() <= descriptors + 8);
  if (!kShadowed) {
    REQUIRE(ResidentBytes() <= resident + kSlackBytes);
    REQUIRE(Mappings() <= mappings + kCycles / 4);
  }
}

}  // namespace tandem
