#include "common/device/cuda/kernel.h"
#include "common/ops/cuda/linear/copy_rows.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256, kMaxBlocks = 1024;

// Strides in elements of T.
template <typename T>
__global__ void CopyRows(const T* from,
                         int64_t from_stride,
                         T* to,
                         int64_t to_stride,
                         int64_t cols,
                         int64_t rows,
                         int64_t filled) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x, count = filled * cols;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const int64_t row = i / cols, col = i % cols;
    to[row * to_stride + col] = row < rows ? from[row * from_stride + col] : T{};
  }
}

template <typename T>
void LaunchAs(RowBytes from,
              RowBytes to,
              int64_t row_bytes,
              int64_t rows,
              int64_t filled,
              CudaStream stream) {
  constexpr int64_t kBytes = sizeof(T);
  const int64_t blocks = (filled * (row_bytes / kBytes) + kThreads - 1) / kThreads;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
  shape.threads = kThreads;
  Launch(CopyRows<T>, shape, stream, static_cast<const T*>(from.data), from.stride / kBytes,
         static_cast<T*>(to.data), to.stride / kBytes, row_bytes / kBytes, rows, filled);
}

}  // namespace

void LaunchCopyRows(RowBytes from,
                    RowBytes to,
                    int64_t row_bytes,
                    int64_t rows,
                    int64_t filled,
                    CudaStream stream) {
  const uint64_t all = reinterpret_cast<uint64_t>(from.data) | reinterpret_cast<uint64_t>(to.data) |
                       static_cast<uint64_t>(from.stride | to.stride | row_bytes);
  if (all % 16 == 0) return LaunchAs<Words4>(from, to, row_bytes, rows, filled, stream);
  LaunchAs<uint16_t>(from, to, row_bytes, rows, filled, stream);
}

}  // namespace tandem::cuda
