#include "tests/emulator/emulator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/types/tensor_view.h"
#include "tests/emulator/capture.h"
#include "tests/emulator/current_device.h"
#include "tests/emulator/fibers.h"
#include "tests/emulator/shared_memory.h"
#include "tests/emulator/watch.h"

namespace tandem::emulator {
namespace {

constexpr int kWarp = 32;
constexpr unsigned kMostThreads = 1024;      // of a block
constexpr uint64_t kBlocksAtOnce = 2;        // as many as show that blocks run side by side
constexpr uint64_t kTurnsAtAnAtomicAdd = 4;  // one of so many lets others go first
static_assert(kBlocksAtOnce * kMostThreads <= kMaxFibers);

// Threads that meet, again and again.
struct Barrier {
  int threads = 0;  // that have not returned
  int arrived = 0;
  uint32_t round = 0;
  std::vector<int> parked;  // fibers

  void Begin(int count) {
    threads = count;
    arrived = 0;
    ++round;
  }
  bool is_last() const { return arrived + 1 == threads; }
  void Release() {
    arrived = 0;
    ++round;
    for (const int fiber : parked) Wake(fiber);
    parked.clear();
  }
  void Wait() {
    if (++arrived == threads) return Release();
    parked.push_back(CurrentFiber());
    Park();
  }
  void Leave() {
    --threads;
    if (arrived > 0 && arrived == threads) Release();
  }
};

struct Warp {
  Barrier barrier;
  const char* function = nullptr;  // that its lanes meet at
  uint16_t memory_round = 0;       // SyncWarps passed
  alignas(16) unsigned char lanes[2][kWarp * kLaneBytes];
};

struct Copy16 {
  void* to;
  const void* from;  // null: zeros
};

// A thread's asynchronous copies, in order, and how many of them there were at each commit.
// Cleared, not made anew, for every block: its memory is used again.
struct ThreadCopies {
  std::vector<Copy16> copies;
  std::vector<size_t> commits;
  size_t carried = 0;  // of copies

  void Clear() {
    copies.clear();
    commits.clear();
    carried = 0;
  }
  void CarryUpTo(size_t end) {
    for (; carried < end; ++carried) {
      const Copy16& copy = copies[carried];
      copy.from == nullptr ? std::memset(copy.to, 0, 16) : std::memcpy(copy.to, copy.from, 16);
      NoteAccess(copy.to, 16, Access::kEndCopy);
    }
  }
};

struct Grid {
  KernelName name;
  unsigned threads;  // of a block
  unsigned shared_bytes;
  Index3 size;
  SharedLimit limit;
};

// The blocks that a thread of the host runs at once. Threads, copies and warps are the first
// block's, then the second's.
struct KernelBlocks {
  const Grid* grid = nullptr;
  std::vector<ThreadState> threads;
  std::vector<ThreadCopies> copies;
  std::vector<Warp> warps;
  std::array<Barrier, kBlocksAtOnce> blocks;  // whose rounds only grow
  SharedMemorySlots shared;
  Numbers numbers{0};
  int current = 0;  // fiber
};
thread_local KernelBlocks kernel_blocks;

std::atomic<uint64_t> seed{FirstSeed()};
std::atomic<int64_t> kernels_run{0};

int SlotOf(int fiber) { return fiber / static_cast<int>(kernel_blocks.grid->threads); }
Warp& MyWarp() { return kernel_blocks.warps[static_cast<size_t>(kernel_blocks.current / kWarp)]; }
Barrier& MyBlock() {
  return kernel_blocks.blocks[static_cast<size_t>(SlotOf(kernel_blocks.current))];
}
ThreadCopies& MyCopies() {
  return kernel_blocks.copies[static_cast<size_t>(kernel_blocks.current)];
}

// The kernel as its launch in the source names it: what stands before the first comma that no
// bracket encloses.
std::string_view NameIn(std::string_view launch) {
  int depth = 0;
  for (size_t i = 0; i < launch.size(); ++i) {
    const char c = launch[i];
    if (c == '<' || c == '(' || c == '{') ++depth;
    if (c == '>' || c == ')' || c == '}') --depth;
    if (c == ',' && depth == 0) launch = launch.substr(0, i);
  }
  return launch.starts_with('&') ? launch.substr(1) : launch;
}

std::string InWords(const KernelName& name) {
  return fmt::format("kernel {} (launched at {}:{})", NameIn(name.launch), name.place.file,
                     name.place.line);
}

// Waits at a barrier; whoever ran meanwhile, this thread is the current one again.
void Wait(Barrier& barrier) {
  const int me = kernel_blocks.current;
  barrier.Wait();
  kernel_blocks.current = me;
}

// A barrier that is left out, to see whether a test finds out.
struct LeftOut {
  std::string_view file;
  int line = 0;
};
LeftOut LeftOutOf(const char* text) {
  if (text == nullptr) return {};
  const std::string_view place = text;
  const size_t colon = place.rfind(':');
  TANDEM_CHECK(colon != std::string_view::npos && std::atoi(text + colon + 1) > 0,
               "TANDEM_EMULATED_SKIP is not file:line");
  return {place.substr(0, colon), std::atoi(text + colon + 1)};
}
bool IsLeftOut(const Place& place) {
  static const LeftOut left_out = LeftOutOf(std::getenv("TANDEM_EMULATED_SKIP"));
  if (place.line != left_out.line || !std::string_view(place.file).ends_with(left_out.file)) {
    return false;
  }
  static const bool said = [&] {
    fmt::print(stderr, "emulator: the barrier at {}:{} is left out\n", place.file, place.line);
    return true;
  }();
  return said;
}

void BeginBlock(int slot, const Index3& at) {
  const Grid& grid = *kernel_blocks.grid;
  const auto threads = static_cast<size_t>(grid.threads),
             first = threads * static_cast<size_t>(slot);
  for (size_t t = 0; t < threads; ++t) {
    kernel_blocks.threads[first + t] = {
        {static_cast<unsigned>(t), 0, 0}, at, {grid.threads, 1, 1}, grid.size};
    kernel_blocks.copies[first + t].Clear();
  }
  for (size_t warp = 0; warp < threads / kWarp; ++warp) {
    kernel_blocks.warps[first / kWarp + warp].barrier.Begin(kWarp);
  }
  kernel_blocks.blocks[static_cast<size_t>(slot)].Begin(static_cast<int>(threads));
  kernel_blocks.shared.BeginBlock(slot);
}

void EndThread() {
  const ThreadCopies& copies = MyCopies();
  if (copies.carried != copies.copies.size()) {
    FailKernel("a thread ended before what it had copied came");
  }
  Warp& warp = MyWarp();
  if (warp.barrier.arrived > 0) {
    FailKernel(fmt::format("a lane returned while others of its warp wait at {}", warp.function));
  }
  MyBlock().Leave();
  warp.barrier.Leave();
}

void RunBlocks(int count, const std::function<void()>& thread) {
  const bool all = RunFibers(count * static_cast<int>(kernel_blocks.grid->threads),
                             kernel_blocks.numbers, [&](int fiber) {
                               kernel_blocks.current = fiber;
                               thread();
                               kernel_blocks.current = fiber;
                               EndThread();
                             });
  if (!all) FailKernel("some threads wait at a barrier that others never reach");
  for (int slot = 0; slot < count; ++slot) {
    kernel_blocks.current = slot * static_cast<int>(kernel_blocks.grid->threads);
    const std::string overrun = kernel_blocks.shared.Overrun(slot);
    if (!overrun.empty()) FailKernel("a thread of the block wrote " + overrun);
  }
}

uint64_t SeedOf(const Grid& grid) {
  uint64_t mixed = seed;
  for (const char c : std::string_view(grid.name.launch))
    mixed = mixed * 31 + static_cast<uint64_t>(c);
  for (const unsigned part : {grid.size.x, grid.size.y, grid.size.z, grid.threads}) {
    mixed = Numbers(mixed + part).Next();
  }
  return mixed;
}

void RunGrid(const Grid& grid, const std::function<void()>& thread) {
  ++kernels_run;
  KernelBlocks& run = kernel_blocks;
  const uint64_t blocks = uint64_t{grid.size.x} * grid.size.y * grid.size.z;
  const uint64_t at_once = std::min(blocks, kBlocksAtOnce);
  run.grid = &grid;
  run.numbers = Numbers(SeedOf(grid));
  run.threads.resize(at_once * grid.threads);
  run.copies.resize(at_once * grid.threads);
  run.warps.resize(at_once * grid.threads / kWarp);
  const uint32_t round = std::max(run.blocks[0].round, run.blocks[1].round);
  for (Barrier& block : run.blocks) block.round = round;
  run.shared.BeginLaunch(static_cast<int>(at_once), grid.shared_bytes);
  BeginWatching(&run.shared);
  std::vector<uint64_t> order(blocks);
  for (uint64_t i = 0; i < blocks; ++i) {  // a shuffle from the inside out
    const uint64_t other = run.numbers.Below(i + 1);
    order[i] = order[other];
    order[other] = i;
  }
  for (uint64_t done = 0; done < blocks; done += at_once) {
    const uint64_t count = std::min(at_once, blocks - done);
    for (uint64_t slot = 0; slot < count; ++slot) {
      const uint64_t b = order[done + slot];
      BeginBlock(static_cast<int>(slot), {static_cast<unsigned>(b % grid.size.x),
                                          static_cast<unsigned>(b / grid.size.x % grid.size.y),
                                          static_cast<unsigned>(b / grid.size.x / grid.size.y)});
    }
    RunBlocks(static_cast<int>(count), thread);
  }
  EndWatching();
  run.grid = nullptr;
}

absl::Status CheckShared(const KernelName& name, int64_t bytes, const SharedLimit& limit) {
  if (bytes <= limit.bytes) return absl::OkStatus();
  return Internal(
      "cudaErrorInvalidValue: {} asks for {} bytes of shared memory, and a block on {} has {}",
      InWords(name), bytes, limit.architecture, limit.bytes);
}

// Bits of element `col` of row `row` of a fragment of 8 rows held by the lanes as registers of
// two elements.
float Element(uint32_t pair, int half) {
  return FromBf16(static_cast<uint16_t>(half == 0 ? pair & 0xffffu : pair >> 16));
}

}  // namespace

ThreadState& This() { return kernel_blocks.threads[static_cast<size_t>(kernel_blocks.current)]; }

Moment CurrentMoment() {
  return {SlotOf(kernel_blocks.current), static_cast<int>(This().thread.x), MyBlock().round,
          MyWarp().memory_round};
}

void FailKernel(const std::string& what) {
  const Index3& at = This().block;
  TANDEM_CHECK(false,
               fmt::format("emulated {}, block {}, {}, {}: {} (TANDEM_EMULATED_SEED={})",
                           InWords(kernel_blocks.grid->name), at.x, at.y, at.z, what, seed.load()));
  std::abort();
}

unsigned char* SharedBytes() { return kernel_blocks.shared.Dynamic(SlotOf(kernel_blocks.current)); }

void* StaticShared(const void* site, const char* name, size_t bytes) {
  SharedMemorySlots& shared = kernel_blocks.shared;
  void* const array = shared.Static(SlotOf(kernel_blocks.current), site, name, bytes);
  const int64_t dynamic = shared.dynamic_bytes(), all = dynamic + shared.static_bytes();
  const SharedLimit& limit = kernel_blocks.grid->limit;
  if (dynamic <= kPlainSharedBytes && all > kPlainSharedBytes) {
    FailKernel(
        fmt::format("{} bytes of shared memory, static arrays included, are more than {}, "
                    "and Launch asks for more only if the dynamic part alone is larger",
                    all, kPlainSharedBytes));
  }
  if (all > limit.bytes) {
    FailKernel(
        fmt::format("{} bytes of shared memory, static arrays included, are more than the "
                    "{} that a block on {} has",
                    all, limit.bytes, limit.architecture));
  }
  return array;
}

void SyncBlock(const Place& place) {
  if (!IsLeftOut(place)) Wait(MyBlock());
}

void SyncLanes(const Place& place) {
  if (IsLeftOut(place)) return;
  Warp& warp = MyWarp();
  if (warp.barrier.is_last()) ++warp.memory_round;
  Meet("SyncWarp", nullptr, 0);
}

const unsigned char* Meet(const char* function, const void* mine, int bytes) {
  Warp& warp = MyWarp();
  if (warp.barrier.threads != kWarp) FailKernel("a lane returned before its warp was done");
  if (warp.barrier.arrived == 0) warp.function = function;
  if (std::string_view(warp.function) != function) {
    FailKernel(fmt::format("lanes of a warp are at {} and at {}", warp.function, function));
  }
  // Two buffers: nobody is two rounds ahead of a lane that still reads.
  unsigned char* const lanes = warp.lanes[warp.barrier.round % 2];
  unsigned char* const to = lanes + kernel_blocks.current % kWarp * kLaneBytes;
  if (bytes > 0) std::memcpy(to, mine, static_cast<size_t>(bytes));
  Wait(warp.barrier);
  return lanes;
}

void StartCopy16(void* to, const void* from) {
  // Aligned as the instruction wants it; both sides.
  TANDEM_CHECK(((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) & 15) == 0,
               "cp.async: 16 bytes are aligned to 16");
  NoteAccess(to, 16, Access::kStartCopy);
  std::memset(to, kPoison, 16);
  MyCopies().copies.push_back({to, from});
}

void CommitCopies() {
  ThreadCopies& mine = MyCopies();
  mine.commits.push_back(mine.copies.size());
}

void WaitForCopies(int newest_left) {
  ThreadCopies& mine = MyCopies();
  const size_t left = static_cast<size_t>(newest_left), groups = mine.commits.size();
  if (groups > left) mine.CarryUpTo(mine.commits[groups - left - 1]);
}

// What other threads do may come before and after it.
void LetOthersGoFirst() {
  if (kernel_blocks.numbers.Below(kTurnsAtAnAtomicAdd) != 0) return;
  const int me = kernel_blocks.current;
  Yield();
  kernel_blocks.current = me;
}

void RunKernel(const KernelName& name,
               const LaunchShape& shape,
               CudaStream stream,
               std::function<void()> thread) {
  TANDEM_CHECK(shape.threads > 0 && shape.threads % kWarp == 0 && shape.threads <= kMostThreads,
               "a block is 1 to 32 whole warps");
  TANDEM_CHECK(shape.grid_x > 0 && shape.grid_y > 0 && shape.grid_z > 0 && shape.grid_y < 65536 &&
                   shape.grid_z < 65536,
               "a grid has at least one block, and fewer than 65536 along y and z");
  const SharedLimit limit = SharedLimitOf(stream);
  for (const absl::Status& refused :
       {CheckDevice(stream), CheckCapture(stream), CheckShared(name, shape.shared_bytes, limit)}) {
    KeepLaunchError(refused);
    if (!refused.ok()) return;
  }
  const Grid grid = {.name = name,
                     .threads = shape.threads,
                     .shared_bytes = shape.shared_bytes,
                     .size = {shape.grid_x, shape.grid_y, shape.grid_z},
                     .limit = limit};
  Submit(stream, [grid, thread = std::move(thread)] { RunGrid(grid, thread); });
}

uint64_t FirstSeed() {
  const char* const text = std::getenv("TANDEM_EMULATED_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 0);
}
void SetSeed(uint64_t next) { seed = next; }
int64_t KernelsRun() { return kernels_run; }

}  // namespace tandem::emulator

namespace tandem {
namespace {

template <typename T>
void Add(T* sum, T value) {
  emulator::LetOthersGoFirst();
  emulator::NoteAccess(sum, sizeof(T), emulator::Access::kAtomic);
  *sum += value;
  emulator::LetOthersGoFirst();
}

}  // namespace

void AtomicAdd(uint64_t* sum, uint64_t value) { Add(sum, value); }
void AtomicAdd(uint32_t* sum, uint32_t value) { Add(sum, value); }

void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const unsigned char* all = emulator::Meet("MmaBf16", mine, sizeof(mine));
  const auto word = [all](int lane, int index) {
    uint32_t bits;
    std::memcpy(&bits, all + lane * emulator::kLaneBytes + index * 4, sizeof(bits));
    return bits;
  };
  const int group = emulator::Lane() / 4, in_group = emulator::Lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = group + (i >= 2 ? 8 : 0), col = in_group * 2 + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; ++k) {
      // a: register 0 rows 0-7, 1 rows 8-15, both k 0-7; 2 and 3 the same for k 8-15.
      const uint32_t pair_a = word(row % 8 * 4 + k % 8 / 2, (row >= 8 ? 1 : 0) + (k >= 8 ? 2 : 0));
      const uint32_t pair_b = word(col * 4 + k % 8 / 2, 4 + (k >= 8 ? 1 : 0));
      sum += emulator::Element(pair_a, k % 2) * emulator::Element(pair_b, k % 2);
    }
    d[i] += sum;
  }
}

namespace {
void LoadMatrices(uint32_t (&r)[4], const void* row, bool transposed) {
  TANDEM_CHECK(reinterpret_cast<uintptr_t>(row) % 16 == 0, "ldmatrix: a row is aligned to 16");
  // The manual does not say which lane reads a row: the one that names it, or those that get it. A
  // kernel may not depend on that.
  emulator::NoteAccess(row, 16, emulator::Access::kRead);
  const unsigned char* all = emulator::Meet("LdMatrix", &row, sizeof(row));
  const int group = emulator::Lane() / 4, in_group = emulator::Lane() % 4;
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint16_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const int at_row = transposed ? in_group * 2 + i : group;
      const int at_col = transposed ? group : in_group * 2 + i;
      const unsigned char* address;
      std::memcpy(&address, all + (matrix * 8 + at_row) * emulator::kLaneBytes, sizeof(address));
      emulator::NoteAccess(address + at_col * 2, 2, emulator::Access::kRead);
      std::memcpy(&pair[i], address + at_col * 2, 2);
    }
    r[matrix] = static_cast<uint32_t>(pair[1]) << 16 | pair[0];
  }
}
}  // namespace

void LdMatrix4(uint32_t (&r)[4], const void* row) { LoadMatrices(r, row, false); }
void LdMatrix4Transposed(uint32_t (&r)[4], const void* row) { LoadMatrices(r, row, true); }

uint32_t PackBf16(float low, float high) {
  // The instruction has one NaN (PTX ISA, "cvt").
  const auto bits = [](float value) { return value != value ? uint32_t{0x7fff} : ToBf16(value); };
  return bits(high) << 16 | bits(low);
}

}  // namespace tandem
