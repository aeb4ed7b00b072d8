// The gradient of a bias: column sums in fp32, in an order that depends on the number of rows
// alone.
#include "common/device/cuda/kernel.h"
#include "common/ops/cuda/linear/gemm_kernels.h"

namespace tandem::cuda {
namespace {

constexpr int kLanes = 32, kChunks = 8;  // rows and 8-column chunks that a block reads at a time

__global__ void __launch_bounds__(kLanes* kChunks)
    ColumnSums(const uint16_t* in, int rows, int cols, int64_t stride, float* sums) {
  TANDEM_SHARED(partial, float[kLanes][kChunks * 8]);
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const int lane = static_cast<int>(threadIdx.x) / kChunks;
  const int col0 = static_cast<int>(blockIdx.x) * kChunks * 8, col = col0 + chunk * 8;
  float sum[8] = {};
  if (col < cols) {
    for (int row = lane; row < rows; row += kLanes) {
      const Words4 words = *reinterpret_cast<const Words4*>(in + row * stride + col);
      const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) {
        sum[i * 2] += LowBf16(pairs[i]);
        sum[i * 2 + 1] += HighBf16(pairs[i]);
      }
    }
  }
  TANDEM_UNROLL
  for (int i = 0; i < 8; ++i) partial[lane][chunk * 8 + i] = sum[i];
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.x);
  if (mine >= kChunks * 8 || col0 + mine >= cols) return;
  float total = 0.0f;
  for (int i = 0; i < kLanes; ++i) total += partial[i][mine];
  sums[col0 + mine] += total;
}

}  // namespace

void LaunchColumnSums(
    const void* in, int64_t rows, int64_t cols, int64_t stride, float* sums, CudaStream stream) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(TilesOf(cols, kChunks * 8));
  shape.threads = kLanes * kChunks;
  Launch(ColumnSums, shape, stream, static_cast<const uint16_t*>(in), rows, cols, stride, sums);
}

}  // namespace tandem::cuda
