#include "common/comm/cuda/add.h"
#include "common/device/cuda/kernel.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 4;

// One float per thread: a shard may begin at any element, so 16-byte accesses could be misaligned.
// The accesses of a warp are still consecutive.
__global__ void AddKernel(float* __restrict__ to, const float* __restrict__ from, int64_t count) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kPerThread + threadIdx.x;
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t at = first + static_cast<int64_t>(i) * kThreads;
    if (at < count) to[at] = to[at] + from[at];
  }
}

}  // namespace

void AddFloats(float* to, const float* from, int64_t count, CudaStream stream) {
  if (count <= 0) return;
  const int64_t per_block = int64_t{kThreads} * kPerThread;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((count + per_block - 1) / per_block);
  shape.threads = kThreads;
  Launch(AddKernel, shape, stream, to, from, count);
}

}  // namespace tandem
