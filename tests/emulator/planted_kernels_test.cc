// Each mistake of a kernel ends the process, and the same kernel without it runs.
#include "tests/emulator/planted_kernels.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/emulator/current_device.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/emulator/scoped_seed.h"
#include "tests/emulator/shared_memory.h"
#include "tests/emulator/watch.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using emulator::EmulatedCuda;
using testing::Between;
using testing::Says;
using testing::ScopedSeed;

// What a process says that aborts; "" if it does not.
std::string LastWords(const std::function<void()>& run) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // not the test's own handler
    dup2(ends[1], STDERR_FILENO);
    run();
    _exit(0);
  }
  close(ends[1]);
  std::string words;
  char part[512];
  for (ssize_t got = 0; (got = read(ends[0], part, sizeof(part))) > 0;) {
    words.append(part, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGABRT);
  return words;
}

bool EndsWith(const std::function<void()>& run, const std::string& text) {
  const std::string words = LastWords(run);
  UNSCOPED_INFO("its last words: " << words);
  return words.find(text) != std::string::npos;
}

bool IsRace(const std::function<void()>& run) { return EndsWith(run, "no barrier in between"); }

}  // namespace

TEST_CASE("no warp function but SyncWarp orders what lanes of a warp write and read") {
  if (!emulator::WatchesKernels()) return;  // a build with a sanitizer
  for (const Between between :
       {Between::kNothing, Between::kShuffle, Between::kLdMatrix, Between::kMma}) {
    INFO("between write and read: " << static_cast<int>(between));
    REQUIRE(IsRace([=] { testing::ReadNeighbours(between, false); }));
    REQUIRE(IsRace([=] { testing::OverwriteAfterRead(between, false); }));
  }
}

TEST_CASE("SyncWarp orders the lanes of a warp alone, and __syncthreads all threads") {
  if (emulator::WatchesKernels()) {
    REQUIRE(IsRace([] { testing::ReadNeighbours(Between::kSyncWarp, true); }));
    REQUIRE(IsRace([] { testing::OverwriteAfterRead(Between::kSyncWarp, true); }));
  }
  for (const uint64_t seed : testing::TwoSeeds()) {
    const ScopedSeed scoped(seed);
    for (const bool next_warp : {false, true}) {
      const Between barrier = next_warp ? Between::kSyncThreads : Between::kSyncWarp;
      const std::vector<int> found = testing::ReadNeighbours(barrier, next_warp);
      REQUIRE(found[7] == (next_warp ? 39 : 8));
      REQUIRE(found[63] == (next_warp ? 31 : 32));
      testing::OverwriteAfterRead(barrier, next_warp);
    }
  }
}

TEST_CASE("an access that no barrier orders is told with its kernel, its array and the seed") {
  if (!emulator::WatchesKernels()) return;
  const ScopedSeed scoped(77);
  const std::string words = LastWords([] { testing::ReadNeighbours(Between::kShuffle, false); });
  for (const std::string part :
       {"kernel WriteThenRead (launched at ", "planted_kernels.cc:", "block 0, 0, 0: thread ",
        " of `values`, which has 256 bytes", "TANDEM_EMULATED_SEED=77"}) {
    INFO(words);
    REQUIRE(words.find(part) != std::string::npos);
  }
}

TEST_CASE("what LdMatrix reads of another lane needs a barrier before, and one after") {
  testing::LoadMatrixOf(true);
  testing::OverwriteMatrixOf(true);
  if (!emulator::WatchesKernels()) return;
  REQUIRE(IsRace([] { testing::LoadMatrixOf(false); }));
  REQUIRE(IsRace([] { testing::OverwriteMatrixOf(false); }));
}

TEST_CASE("an asynchronous copy is there for others after its thread's wait and a barrier") {
  testing::ReadCopied(true);
  testing::CopyOverWhatIsRead(true);
  if (!emulator::WatchesKernels()) return;
  REQUIRE(IsRace([] { testing::ReadCopied(false); }));
  REQUIRE(IsRace([] { testing::CopyOverWhatIsRead(false); }));
}

TEST_CASE("a sum of atomic additions needs a barrier before it is read") {
  REQUIRE(testing::SumInShared(true) == 64);
  if (emulator::WatchesKernels()) REQUIRE(IsRace([] { testing::SumInShared(false); }));
}

TEST_CASE("no block finds in shared memory what another one left there") {
  for (const float found : testing::FoundByBlocks(5)) REQUIRE(std::isnan(found));
}

TEST_CASE("a write beyond an array of shared memory is told, wherever it is") {
  REQUIRE(
      EndsWith([] { testing::AccessStatic(32, true); }, "byte 128 of `kept`, which has 128 bytes"));
  REQUIRE(
      EndsWith([] { testing::AccessStatic(-1, true); }, "byte -4 of `kept`, which has 128 bytes"));
  REQUIRE(EndsWith([] { testing::AccessDynamic(32, true); },
                   "byte 128 of `SharedMemory()`, which has 128 bytes"));
  REQUIRE(EndsWith([] { testing::AccessDynamic(-2, true); },
                   "byte -8 of `SharedMemory()`, which has 128 bytes"));
  REQUIRE(EndsWith([] { testing::AccessStatic(40, true); }, "kernel IndexStatic (launched at "));
  testing::AccessStatic(31, true);
  testing::AccessDynamic(31, true);
}

TEST_CASE("a read beyond an array of shared memory is told, too") {
  if (!emulator::WatchesKernels()) return;
  REQUIRE(EndsWith([] { testing::AccessStatic(32, false); }, "thread 0 reads byte 128 of `kept`"));
  REQUIRE(EndsWith([] { testing::AccessDynamic(-1, false); },
                   "thread 0 reads byte -4 of `SharedMemory()`"));
}

TEST_CASE("bytes around shared memory show a write that nothing watched") {
  emulator::SharedMemorySlots memory;
  memory.BeginLaunch(2, 100);
  memory.BeginBlock(1);
  const int site = 0;
  auto* const array = static_cast<unsigned char*>(memory.Static(1, &site, "sums", 12));
  REQUIRE(memory.Static(1, &site, "sums", 12) == array);
  array[11] = memory.Dynamic(1)[99] = 1;
  REQUIRE(memory.Overrun(1).empty());
  array[12] = 1;
  REQUIRE(memory.Overrun(1) == "byte 12 of `sums`, which has 12 bytes");
  REQUIRE(memory.Overrun(0).empty());
  memory.Dynamic(1)[100] = 1;
  REQUIRE(memory.Overrun(1) == "byte 100 of `SharedMemory()`, which has 100 bytes");
}

TEST_CASE("the order of threads follows from the seed") {
  std::set<std::vector<unsigned>> orders;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const ScopedSeed scoped(seed);
    const std::vector<unsigned> order = testing::OrderOfThreads(96, 1);
    REQUIRE(testing::OrderOfThreads(96, 1) == order);
    REQUIRE(std::set<unsigned>(order.begin(), order.end()).size() == 96);
    REQUIRE(!std::is_sorted(order.begin(), order.begin() + 32));
    orders.insert(order);
  }
  REQUIRE(orders.size() == 4);
}

TEST_CASE("a warp may be done before another one begins, and not always the first") {
  std::set<unsigned> first;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const ScopedSeed scoped(seed);
    const std::vector<unsigned> order = testing::OrderOfThreads(64, 2);
    const unsigned warp = order[0] / 32;
    const bool alone = std::all_of(order.begin(), order.begin() + 64,
                                   [&](unsigned thread) { return thread / 32 == warp; });
    if (alone) first.insert(warp);
  }
  REQUIRE(first == std::set<unsigned>{0, 1});
}

TEST_CASE("blocks run side by side") {
  // Blocks of one after the other would add 64; of two side by side one addition may be lost.
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const ScopedSeed scoped(seed);
    const int added = testing::AddedByBlocks(64);
    REQUIRE(added < 64);
    REQUIRE(added >= 32);
  }
}

TEST_CASE("other threads' atomic additions may come before a thread goes on after its own") {
  const std::vector<uint32_t> found = testing::FoundAfterAtomicAdd();
  const std::set<uint32_t> different(found.begin(), found.end());
  REQUIRE(*different.rbegin() == 64);
  REQUIRE(different.size() < 64);
}

TEST_CASE("lanes of a warp that are at different functions, or gone, are told") {
  REQUIRE(EndsWith([] { testing::MeetElsewhere(); }, "lanes of a warp are at "));
  const std::string words = LastWords([] { testing::ReturnEarly(); });
  const bool told = words.find("a lane returned") != std::string::npos;
  INFO(words);
  REQUIRE(told);
}

TEST_CASE("a launch has no more shared memory than its device") {
  const auto refusal = [](int major, int minor, unsigned bytes) {
    EmulatedCuda cuda({.compute_major = major, .compute_minor = minor});
    const CudaStream stream = *cuda.CreateStream();
    testing::LaunchWithShared(stream, bytes, false);
    const absl::Status status = cuda.LastError();
    REQUIRE(cuda.DestroyStream(stream).ok());
    return status;
  };
  struct Row {
    int major, minor;
    unsigned kibibytes;
  };
  for (const Row& row : {Row{8, 0, 163}, {8, 6, 99}, {8, 9, 99}, {9, 0, 227}, {10, 0, 227}}) {
    INFO("sm_" << row.major << row.minor);
    REQUIRE(emulator::SharedLimitOf(row.major, row.minor).bytes == int64_t{row.kibibytes} << 10);
    REQUIRE(refusal(row.major, row.minor, row.kibibytes << 10).ok());
    REQUIRE(Says(refusal(row.major, row.minor, (row.kibibytes << 10) + 16),
                 "cudaErrorInvalidValue: kernel HasNoStatic (launched at "));
  }
  REQUIRE(Says(refusal(8, 6, 100 << 10),
               "asks for 102400 bytes of shared memory, and a block on sm_86 has 101376"));
}

TEST_CASE("static arrays count where a kernel has not asked for more shared memory") {
  testing::LaunchWithShared(nullptr, 32 << 10, true);
  REQUIRE(EndsWith([] { testing::LaunchWithShared(nullptr, 40 << 10, true); },
                   "57344 bytes of shared memory, static arrays included, are more than 49152"));
  testing::LaunchWithShared(nullptr, 100 << 10, true);
  REQUIRE(EndsWith([] { testing::LaunchWithShared(nullptr, 160 << 10, true); },
                   "more than the 166912 that a block on sm_80 has"));
}

}  // namespace tandem
