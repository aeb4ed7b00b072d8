// The kernel language of kernel.h on the host: threads of a block are fibers. Warp functions and
// tensor-core fragments do what the PTX manual says of them. For tests; it is slow, and says
// nothing about speed, about the order of accesses to global memory, or about the last bits of a
// GPU's own functions (expf, rsqrtf, the sums inside a tensor core).
//
// A kernel that only works by luck fails here:
// - Shared memory is filled with NaN before a block starts, static arrays included, and an access
//   beyond an array ends the process.
// - Two accesses to shared memory that no barrier orders end the process, in whatever order they
//   were made (watch.h). So does a read of what is copied asynchronously and was not waited for.
// - Two blocks run at a time. Which blocks, and which warp and lane goes on next, is drawn from a
//   seed (SetSeed), as is whether others go first at an AtomicAdd.
// - A launch gets no more shared memory than its device has.
//
// TANDEM_EMULATED_SEED: the first seed, instead of 1; messages name it. TANDEM_EMULATED_SKIP=
// <file>:<line>: the barrier in that line of a kernel is left out (deploy/scripts/mutations.py).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include <math.h>  // expf, fmaf and the like outside of std, as in a kernel

#include "common/device/cuda/launch.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __constant__

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
// The static array of this block that is declared at `site`.
void* StaticShared(const void* site, const char* name, size_t bytes);
// A line of a kernel's source, by default the caller's caller's.
struct Place {
  const char* file;
  int line;
};
void SyncBlock(const Place& place);
void SyncLanes(const Place& place);
// Every lane of the warp calls the same `function`, gives `bytes` and gets all 32 lanes' (lane l at
// l * kLaneBytes), valid until the lane's next meeting. Orders no memory.
inline constexpr int kLaneBytes = 32;
const unsigned char* Meet(const char* function, const void* mine, int bytes);

// Copies of 16 bytes, of zeros where `from` is null: `to` holds NaN until the thread waits for the
// group that the copy belongs to, when `from` is read.
void StartCopy16(void* to, const void* from);
void CommitCopies();
void WaitForCopies(int newest_left);

// A kernel as its launch names it.
struct KernelName {
  const char* launch;  // the arguments of Launch, the kernel first
  Place place;
};
// Runs `thread` in every thread of every block, or keeps it where `stream` is captured.
void RunKernel(const KernelName& name,
               const LaunchShape& shape,
               CudaStream stream,
               std::function<void()> thread);
// Work on a stream: done at once, or kept where the stream is captured or late.
void Submit(CudaStream stream, std::function<void()> work);

// What a kernel computes may not depend on the seed: where it does, a barrier is missing. A
// kernel's order of threads follows from the seed, its name and its shape alone, so that a test
// sees the same order by itself as among others.
void SetSeed(uint64_t seed);
uint64_t FirstSeed();
// Kernels run since the program began; captured ones count when they are launched.
int64_t KernelsRun();

inline int Lane() { return static_cast<int>(This().thread.x % 32); }

template <typename... Parameters, typename... Arguments>
void LaunchNamed(const KernelName& name,
                 void (*kernel)(Parameters...),
                 const LaunchShape& shape,
                 CudaStream stream,
                 Arguments... arguments) {
  const std::tuple<Parameters...> held(static_cast<Parameters>(arguments)...);
  RunKernel(name, shape, stream, [kernel, held] { std::apply(kernel, held); });
}

}  // namespace emulator

// For kernels of a test's own; in those that are compiled for the emulator Launch is a macro, which
// names them (kernel_language.h).
template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...),
            const LaunchShape& shape,
            CudaStream stream,
            Arguments... arguments) {
  emulator::LaunchNamed({"of a test", {"", 0}}, kernel, shape, stream, arguments...);
}

#define threadIdx (::tandem::emulator::This().thread)
#define blockIdx (::tandem::emulator::This().block)
#define blockDim (::tandem::emulator::This().block_dim)
#define gridDim (::tandem::emulator::This().grid_dim)
#define TANDEM_SHARED(name, ...)                                 \
  static const char name##_site = 0;                             \
  auto& name = *static_cast<std::type_identity_t<__VA_ARGS__>*>( \
      ::tandem::emulator::StaticShared(&name##_site, #name, sizeof(__VA_ARGS__)))

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::SyncBlock({file, line});
}
inline void SyncWarp(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::SyncLanes({file, line});
}

inline unsigned char* SharedMemory() { return emulator::SharedBytes(); }

template <typename T>
T Shuffle(T value, int lane) {
  const unsigned char* all = emulator::Meet("a shuffle", &value, sizeof(T));
  T other;
  std::memcpy(&other, all + lane % 32 * emulator::kLaneBytes, sizeof(T));
  return other;
}
template <typename T>
T ShuffleXor(T value, int lanes) {
  return Shuffle(value, emulator::Lane() ^ lanes);
}
void AtomicAdd(uint64_t* sum, uint64_t value);
void AtomicAdd(uint32_t* sum, uint32_t value);

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
