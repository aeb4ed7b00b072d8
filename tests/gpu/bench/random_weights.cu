#include "common/device/cuda/kernel.h"
#include "tests/gpu/bench/random_weights.h"

namespace tandem::testing {
namespace {

constexpr int kThreads = 256;

// SplitMix64's steps of mixing (Steele, Lea and Flood, 2014).
__device__ __forceinline__ uint64_t Mixed(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
  return word ^ (word >> 31);
}

__global__ void __launch_bounds__(kThreads)
    RandomWeights(float* values, int64_t first, int64_t count, uint64_t seed) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const uint64_t word = Mixed(Mixed(seed) + static_cast<uint64_t>(first + i));
  const auto step = static_cast<int32_t>(word >> 40);  // 24 bits
  values[i] = static_cast<float>(step - (1 << 23)) / static_cast<float>(1 << 27);
}

}  // namespace

void LaunchRandomWeights(
    CudaStream stream, float* values, int64_t first, int64_t count, uint64_t seed) {
  if (count == 0) return;
  const LaunchShape shape = {.grid_x = static_cast<unsigned>((count + kThreads - 1) / kThreads),
                             .threads = kThreads};
  Launch(RandomWeights, shape, stream, values, first, count, seed);
}

}  // namespace tandem::testing
