#include "tests/emulator/emulator.h"

#include <atomic>
#include <vector>

#include "common/base/check.h"
#include "common/types/tensor_view.h"
#include "tests/emulator/capture.h"
#include "tests/emulator/current_device.h"

namespace tandem::emulator {
namespace {

constexpr int kWarp = 32;

// Threads that meet, again and again.
struct Barrier {
  int threads = 0;  // that have not returned
  int arrived = 0;
  int64_t round = 0;

  void Release() {
    arrived = 0;
    ++round;
    NoteProgress();
  }
  void Wait() {
    const int64_t mine = round;
    if (++arrived == threads) return Release();
    while (round == mine) Yield();
  }
  void Leave() {
    --threads;
    if (arrived > 0 && arrived == threads) Release();
  }
};

struct Warp {
  Barrier barrier;
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
    }
  }
};

struct KernelBlock {
  std::vector<ThreadState> threads;
  std::vector<ThreadCopies> copies;
  std::vector<Warp> warps;
  std::vector<unsigned char> shared;
  Barrier barrier;
  int current = 0;
};
thread_local KernelBlock kernel_block;

Order block_order = Order::kForward;
std::atomic<int64_t> kernels_run{0};

void RunBlock(const Index3& at,
              const Index3& grid,
              unsigned threads,
              const std::function<void()>& thread) {
  for (unsigned t = 0; t < threads; ++t) {
    kernel_block.threads[t] = {{t, 0, 0}, at, {threads, 1, 1}, grid};
    kernel_block.copies[t].Clear();
  }
  kernel_block.barrier = {static_cast<int>(threads), 0, 0};
  for (Warp& warp : kernel_block.warps) warp.barrier = {kWarp, 0, 0};
  std::memset(kernel_block.shared.data(), 0xff, kernel_block.shared.size());
  RunFibers(static_cast<int>(threads), block_order, "emulated kernel", [&](int index) {
    kernel_block.current = index;
    thread();
    kernel_block.current = index;
    const ThreadCopies& copies = kernel_block.copies[static_cast<size_t>(index)];
    TANDEM_CHECK(copies.carried == copies.copies.size(),
                 "a thread ended before what it had copied came");
    kernel_block.barrier.Leave();
    kernel_block.warps[static_cast<size_t>(index / kWarp)].barrier.Leave();
  });
}

// Bits of element `col` of row `row` of a fragment of 8 rows held by the lanes as registers of
// two elements.
float Element(uint32_t pair, int half) {
  return FromBf16(static_cast<uint16_t>(half == 0 ? pair & 0xffffu : pair >> 16));
}

}  // namespace

ThreadState& This() { return kernel_block.threads[static_cast<size_t>(kernel_block.current)]; }

unsigned char* SharedBytes() {
  return kernel_block.shared.data() +
         (-reinterpret_cast<uintptr_t>(kernel_block.shared.data()) & 127);
}

void SyncBlock() {
  const int me = kernel_block.current;
  kernel_block.barrier.Wait();
  kernel_block.current = me;
}

void StartCopy16(void* to, const void* from) {
  // Aligned as the instruction wants it; both sides.
  TANDEM_CHECK(((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) & 15) == 0,
               "cp.async: 16 bytes are aligned to 16");
  std::memset(to, 0xff, 16);
  kernel_block.copies[static_cast<size_t>(kernel_block.current)].copies.push_back({to, from});
}

void CommitCopies() {
  ThreadCopies& mine = kernel_block.copies[static_cast<size_t>(kernel_block.current)];
  mine.commits.push_back(mine.copies.size());
}

void WaitForCopies(int newest_left) {
  ThreadCopies& mine = kernel_block.copies[static_cast<size_t>(kernel_block.current)];
  const size_t left = static_cast<size_t>(newest_left), groups = mine.commits.size();
  if (groups > left) mine.CarryUpTo(mine.commits[groups - left - 1]);
}

const unsigned char* Exchange(const void* mine, int bytes) {
  const int me = kernel_block.current;
  Warp& warp = kernel_block.warps[static_cast<size_t>(me / kWarp)];
  // Two buffers: nobody is two rounds ahead of a lane that still reads.
  unsigned char* const lanes = warp.lanes[warp.barrier.round % 2];
  if (bytes > 0) std::memcpy(lanes + me % kWarp * kLaneBytes, mine, static_cast<size_t>(bytes));
  TANDEM_CHECK(warp.barrier.threads == kWarp, "a lane returned before its warp was done");
  warp.barrier.Wait();
  kernel_block.current = me;
  return lanes;
}

void RunKernel(const LaunchShape& shape, CudaStream stream, std::function<void()> thread) {
  const unsigned threads = shape.threads;
  const Index3 grid = {shape.grid_x, shape.grid_y, shape.grid_z};
  TANDEM_CHECK(threads > 0 && threads % kWarp == 0 && threads <= 1024,
               "a block is 1 to 32 whole warps");
  TANDEM_CHECK(grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y < 65536 && grid.z < 65536,
               "a grid has at least one block, and fewer than 65536 along y and z");
  TANDEM_CHECK(shape.shared_bytes <= 227 * 1024, "more shared memory than a block can have");
  for (const absl::Status& refused : {CheckDevice(stream), CheckCapture(stream)}) {
    KeepLaunchError(refused);
    if (!refused.ok()) return;
  }
  Submit(stream, [=, thread = std::move(thread)] {
    ++kernels_run;
    kernel_block.threads.resize(threads);
    kernel_block.copies.resize(threads);
    kernel_block.warps.resize(threads / kWarp);
    kernel_block.shared.resize(shape.shared_bytes + 128);
    const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    for (uint64_t i = 0; i < blocks; ++i) {
      const uint64_t b = block_order == Order::kForward ? i : blocks - 1 - i;
      const Index3 at = {static_cast<unsigned>(b % grid.x),
                         static_cast<unsigned>(b / grid.x % grid.y),
                         static_cast<unsigned>(b / grid.x / grid.y)};
      RunBlock(at, grid, threads, thread);
    }
  });
}

void SetOrder(Order next) { block_order = next; }
int64_t KernelsRun() { return kernels_run; }

}  // namespace tandem::emulator

namespace tandem {

void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const unsigned char* all = emulator::Exchange(mine, sizeof(mine));
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
  const unsigned char* all = emulator::Exchange(&row, sizeof(row));
  const int group = emulator::Lane() / 4, in_group = emulator::Lane() % 4;
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint16_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const int at_row = transposed ? in_group * 2 + i : group;
      const int at_col = transposed ? group : in_group * 2 + i;
      const unsigned char* address;
      std::memcpy(&address, all + (matrix * 8 + at_row) * emulator::kLaneBytes, sizeof(address));
      std::memcpy(&pair[i], address + at_col * 2, 2);
    }
    r[matrix] = static_cast<uint32_t>(pair[1]) << 16 | pair[0];
  }
  SyncWarp();
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
