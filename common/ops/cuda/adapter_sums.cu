// Gradients of A and B of adapters beside their weights: sums over rows, a chain each that is
// never divided, so that cutting a batch changes no bit (adapter_kernels.h).
#include "common/ops/cuda/adapter_kernels.h"
#include "common/ops/cuda/rows/element_math.h"

namespace tandem {
namespace {

constexpr int kColumns = 64, kValues = 16, kThreads = kColumns / 8 * kValues;
constexpr int kRowChunk = 64;  // rows that are read at a time, so that many loads are in flight

struct alignas(16) Staged {
  float wide[kRowChunk][kColumns];
  float t[kRowChunk][kValues];
};

struct SumsCall {
  const uint16_t* wide;
  int64_t wide_stride;
  const float* t;
  int64_t t_stride;
  float* sums;
  int64_t of_column, of_rank;
  int rows, cols, rank;
};

// A block handles 64 columns and 16 values; a thread 8 columns of one value.
__global__ void __launch_bounds__(kThreads) SumRows(SumsCall call) {
  TANDEM_SHARED(staged, Staged);
  const int mine = static_cast<int>(threadIdx.x);
  const int place = mine % (kColumns / 8) * 8, value = mine / (kColumns / 8);
  const int col0 = static_cast<int>(blockIdx.x) * kColumns, col = col0 + place;
  const int k0 = static_cast<int>(blockIdx.y) * kValues, k = k0 + value;
  const bool has = col < call.cols && k < call.rank;
  float* const at = call.sums + col * call.of_column + k * call.of_rank;
  float chains[8] = {};
  if (has) {
    TANDEM_UNROLL
    for (int i = 0; i < 8; ++i) chains[i] = at[i * call.of_column];
  }
  for (int row0 = 0; row0 < call.rows; row0 += kRowChunk) {
    const int rows = call.rows - row0 < kRowChunk ? call.rows - row0 : kRowChunk;
    __syncthreads();
    TANDEM_UNROLL
    for (int i = 0; i < kRowChunk / kValues; ++i) {
      const int row = i * kValues + value;
      if (row >= rows || col >= call.cols) continue;
      StoreFloats8(staged.wide[row] + place,
                   Widen(LoadWords(call.wide + (row0 + row) * call.wide_stride + col)));
    }
    TANDEM_UNROLL
    for (int i = 0; i < kRowChunk * kValues / kThreads; ++i) {
      const int row = (i * kThreads + mine) / kValues, of = (i * kThreads + mine) % kValues;
      if (row >= rows || k0 + of >= call.rank) continue;
      staged.t[row][of] = call.t[(row0 + row) * call.t_stride + k0 + of];
    }
    __syncthreads();
    for (int row = 0; has && row < rows; ++row) {
      const Floats8 x = LoadFloats8(staged.wide[row] + place);
      TANDEM_UNROLL
      for (int i = 0; i < 8; ++i) chains[i] = fmaf(x.of[i], staged.t[row][value], chains[i]);
    }
  }
  if (!has) return;
  TANDEM_UNROLL
  for (int i = 0; i < 8; ++i) at[i * call.of_column] = chains[i];
}

}  // namespace

void LaunchRankSums(CudaStream stream,
                    Matrix wide,
                    const float* t,
                    int64_t t_stride,
                    int64_t rank,
                    const RankSums& sums) {
  if (wide.rows == 0) return;
  const SumsCall call = {.wide = static_cast<const uint16_t*>(wide.data),
                         .wide_stride = wide.stride,
                         .t = t,
                         .t_stride = t_stride,
                         .sums = sums.sums,
                         .of_column = sums.of_column,
                         .of_rank = sums.of_rank,
                         .rows = static_cast<int>(wide.rows),
                         .cols = static_cast<int>(wide.cols),
                         .rank = static_cast<int>(rank)};
  Launch(SumRows,
         {.grid_x = static_cast<unsigned>((wide.cols + kColumns - 1) / kColumns),
          .grid_y = static_cast<unsigned>((rank + kValues - 1) / kValues),
          .threads = kThreads},
         stream, call);
}

}  // namespace tandem
