// Memory that sleep releases leaves the process, and another one can allocate it.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/rollout_worker/engine_rig.h"

namespace tandem {
namespace {

using namespace tandem::testing;

// The heap's and the test's own; activations are mapped but touched only in part.
constexpr int64_t kSlackBytes = 3 << 20;

// 19 MiB of weights and 32 MiB of KV cache.
constexpr int64_t kKvBlocks = 512;
TinyModelOptions MegabytesModel() {
  return {.hidden_size = 512,
          .num_layers = 4,
          .num_heads = 8,
          .num_kv_heads = 2,
          .head_dim = 64,
          .intermediate_size = 1024};
}

// "Rss" or "Pss" (memory shared with other processes counts in part) of a process, bytes.
int64_t SmapsBytes(pid_t pid, const std::string& field) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1)) << 10;
  }
  FAIL("no " << field << " of process " << pid);
  return 0;
}
int64_t ResidentBytes() { return SmapsBytes(getpid(), "Rss"); }

// Pages of a mapping that exist now.
int64_t PagesOf(const std::byte* data, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> resident(static_cast<size_t>((bytes + page - 1) / page));
  if (mincore(const_cast<std::byte*>(data), static_cast<size_t>(bytes), resident.data()) != 0) {
    return 0;
  }
  return std::count_if(resident.begin(), resident.end(), [](auto p) { return (p & 1) != 0; });
}

struct MemoryReturnFixture {
  TinyWeights weights{MegabytesModel(), DType::kBFloat16};
  std::unique_ptr<Engine> engine;

  MemoryReturnFixture() {
    EngineOptions options = MakeEngineTestOptions(weights, {.max_num_batched_tokens = 64});
    options.load_weights = true;
    options.kv_blocks = kKvBlocks;
    engine = Engine::Create(options).value();
    FillKv();
  }
  // Every page of the KV cache exists and holds something.
  void FillKv() {
    std::memset(FindMemory(*engine).kv, 0x5a,
                static_cast<size_t>(Held("kv_cache", Location::kDevice)));
  }
  int64_t Held(const std::string& tag, Location location) const {
    for (const LedgerEntry& entry : engine->ledger().Snapshot().entries) {
      if (entry.tag == tag && entry.location == location) return entry.current_bytes;
    }
    return 0;
  }
  int64_t HeldByTag(const std::string& tag) const {
    return Held(tag, Location::kDevice) + Held(tag, Location::kHost);
  }
  int64_t HeldInAll() const {
    int64_t bytes = 0;
    for (const LedgerEntry& entry : engine->ledger().Snapshot().entries) {
      bytes += entry.current_bytes;
    }
    return bytes;
  }
};

// `change` must lower what the process holds by what it lowers the ledger, within the slack.
template <typename Change>
int64_t RequireReturned(MemoryReturnFixture& f, const Change& change) {
  const int64_t resident = ResidentBytes(), held = f.HeldInAll();
  change();
  const int64_t given = held - f.HeldInAll();
  const int64_t gone = resident - ResidentBytes();
  INFO("the ledger fell by " << given << " bytes, the process by " << gone);
  REQUIRE(gone >= given - kSlackBytes);
  REQUIRE(gone <= given + kSlackBytes);
  return given;
}

}  // namespace

TEST_CASE("M2: sleep at both levels gives the system what the ledger says") {
  MemoryReturnFixture f;
  const int64_t kv = f.Held("kv_cache", Location::kDevice);
  const int64_t weights = f.Held("weights", Location::kDevice);
  REQUIRE(kv > 24 << 20);
  REQUIRE(weights > 12 << 20);
  const std::byte* const kv_at = FindMemory(*f.engine).kv;
  for (const int level : {1, 2}) {
    INFO("level " << level);
    const int64_t given =
        RequireReturned(f, [&] { REQUIRE(Sleep(*f.engine, {.level = level}).ok()); });
    REQUIRE(given >= (level == 1 ? kv : kv + weights));
    REQUIRE(PagesOf(kv_at, kv) == 0);
    REQUIRE(PagesOf(FindMemory(*f.engine).weights, weights) == 0);
    REQUIRE(f.Held("weights", Location::kHost) == (level == 1 ? weights : 0));
    REQUIRE(Wake(*f.engine, {}).ok());
    // The same addresses, no pages yet, and nothing of what was there before.
    REQUIRE(FindMemory(*f.engine).kv == kv_at);
    REQUIRE(f.Held("kv_cache", Location::kDevice) == kv);
    REQUIRE(PagesOf(kv_at, kv) == 0);
    REQUIRE(std::all_of(kv_at, kv_at + kv, [](std::byte b) { return b == std::byte{0}; }));
    REQUIRE(f.engine->status().load.kv_blocks_used == 0);
    f.FillKv();
  }
}

TEST_CASE("M2: each tag is given back by itself, and no other") {
  MemoryReturnFixture f;
  const int64_t weights = f.HeldByTag("weights"), kv = f.HeldByTag("kv_cache");
  RequireReturned(f, [&] { REQUIRE(Sleep(*f.engine, {.tags = {"kv_cache"}}).ok()); });
  REQUIRE(f.HeldByTag("kv_cache") == 0);
  REQUIRE(f.HeldByTag("weights") == weights);
  REQUIRE(VerifyWeights(*f.engine, 0).ok());
  RequireReturned(f, [&] { REQUIRE(Sleep(*f.engine, {.tags = {"weights"}}).ok()); });
  REQUIRE(f.HeldByTag("weights") == 0);
  REQUIRE(Wake(*f.engine, {"kv_cache"}).ok());
  REQUIRE(f.HeldByTag("kv_cache") == kv);
  REQUIRE(f.HeldByTag("weights") == 0);
}

TEST_CASE("M2: another process gets what a sleeping rollout gave back, within one budget") {
  MemoryReturnFixture f;
  const int64_t budget = SmapsBytes(getpid(), "Pss");
  const int64_t given = RequireReturned(f, [&] { REQUIRE(Sleep(*f.engine, {.level = 2}).ok()); });
  int ready[2], done[2];
  REQUIRE(pipe(ready) == 0);
  REQUIRE(pipe(done) == 0);
  const pid_t child = fork();
  if (child == 0) {
    void* const memory = mmap(nullptr, static_cast<size_t>(given), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char byte = memory == MAP_FAILED ? 0 : 1;
    if (byte == 1) std::memset(memory, 1, static_cast<size_t>(given));
    (void)!write(ready[1], &byte, 1);
    (void)!read(done[0], &byte, 1);
    _exit(0);
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  const int64_t together = SmapsBytes(getpid(), "Pss") + SmapsBytes(child, "Pss");
  const int64_t of_child = SmapsBytes(child, "Pss");
  REQUIRE(write(done[1], &byte, 1) == 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) close(fd);
  INFO("together " << together << " of " << budget << " bytes, given back " << given);
  REQUIRE(byte == 1);
  REQUIRE(of_child >= given);
  REQUIRE(together <= budget + kSlackBytes);
}

}  // namespace tandem
