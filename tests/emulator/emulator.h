// The kernel language of kernel.h on the host: threads of a block are fibers, blocks run one after
// the other. Warp functions and tensor-core fragments do what the PTX manual says of them. For
// tests; it is slow, and says nothing about speed, about memory order between blocks, or about the
// last bits of a GPU's own functions (expf, rsqrtf, the sums inside a tensor core).
//
// Shared memory is filled with NaN before a block starts, and a test can turn the order of threads
// and blocks around (SetOrder): a kernel that reads before it writes, or without a barrier, shows.
// So does one that reads what it copies asynchronously before it has waited for it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>

#include <math.h>  // expf, fmaf and the like outside of std, as in a kernel

#include "common/device/cuda/launch.h"
#include "tests/emulator/fibers.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __constant__
#define __shared__ static thread_local

namespace tandem {

namespace emulator {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// Of the thread that runs.
struct ThreadState {
  Index3 thread, block, block_dim, grid_dim;
};
ThreadState& This();
unsigned char* SharedBytes();
void SyncBlock();
// Every lane of the warp gives `bytes` and gets all 32 lanes' (lane l at l * kLaneBytes); valid
// until the lane's next exchange.
inline constexpr int kLaneBytes = 32;
const unsigned char* Exchange(const void* mine, int bytes);

// Copies of 16 bytes, of zeros where `from` is null: `to` holds NaN until the thread waits for the
// group that the copy belongs to, when `from` is read.
void StartCopy16(void* to, const void* from);
void CommitCopies();
void WaitForCopies(int newest_left);

// Runs `thread` in every thread of every block, or keeps it where `stream` is captured.
void RunKernel(const LaunchShape& shape, CudaStream stream, std::function<void()> thread);
// Work on a stream: done at once, or kept where the stream is captured or late.
void Submit(CudaStream stream, std::function<void()> work);

void SetOrder(Order order);
// Kernels run since the program began; captured ones count when they are launched.
int64_t KernelsRun();

inline int Lane() { return static_cast<int>(This().thread.x % 32); }

}  // namespace emulator

#define threadIdx (::tandem::emulator::This().thread)
#define blockIdx (::tandem::emulator::This().block)
#define blockDim (::tandem::emulator::This().block_dim)
#define gridDim (::tandem::emulator::This().grid_dim)
inline void __syncthreads() { emulator::SyncBlock(); }

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...),
            const LaunchShape& shape,
            CudaStream stream,
            Arguments... arguments) {
  const std::tuple<Parameters...> held(static_cast<Parameters>(arguments)...);
  emulator::RunKernel(shape, stream, [kernel, held] { std::apply(kernel, held); });
}

inline unsigned char* SharedMemory() { return emulator::SharedBytes(); }

template <typename T>
T Shuffle(T value, int lane) {
  const unsigned char* all = emulator::Exchange(&value, sizeof(T));
  T other;
  std::memcpy(&other, all + lane % 32 * emulator::kLaneBytes, sizeof(T));
  return other;
}
template <typename T>
T ShuffleXor(T value, int lanes) {
  return Shuffle(value, emulator::Lane() ^ lanes);
}
inline void SyncWarp() { emulator::Exchange(nullptr, 0); }
template <typename T>
void AtomicAdd(T* sum, T value) {
  *sum += value;
}

void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void LdMatrix4(uint32_t (&r)[4], const void* row);
void LdMatrix4Transposed(uint32_t (&r)[4], const void* row);

inline void CopyAsync16(void* to, const void* from, bool valid = true) {
  emulator::StartCopy16(to, valid ? from : nullptr);
}
inline void CopyCommit() { emulator::CommitCopies(); }
template <int kGroups>
void CopyWait() {
  emulator::WaitForCopies(kGroups);
}

uint32_t PackBf16(float low, float high);
inline float BitsToFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline uint32_t FloatToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }

}  // namespace tandem
