#include "common/ops/cuda/rows/element_math.h"
#include "common/weights/cuda/weight_pass.h"

namespace tandem {
namespace {

// A block has a tile of the weight, a warp eight of its rows, and a lane four columns that are a
// warp's width apart, so that every access of a warp is contiguous.
constexpr int kThreads = 256;
constexpr int kRowsOfWarp = 8, kColsOfLane = 4;
constexpr int kTileRows = kThreads / 32 * kRowsOfWarp;
constexpr int kTileCols = 32 * kColsOfLane;
constexpr int kTileRanks = 32;
constexpr int kBStride = kTileRows + 4;  // padded, so that a warp's writes spread over the banks
constexpr int kAFloats = kTileRanks * kTileCols;
constexpr unsigned kSharedBytes = (kAFloats + kTileRanks * kBStride) * sizeof(float);

__device__ __forceinline__ float AsFloat(float value) { return value; }
__device__ __forceinline__ float AsFloat(uint16_t value) { return FromBf16Bits(value); }
__device__ __forceinline__ void Put(float* to, float value) { *to = value; }
__device__ __forceinline__ void Put(uint16_t* to, float value) { *to = WeightBits(value); }

// Turns a zero of either sign into -0, which changes no number that it is added to, -0 included.
__device__ __forceinline__ float NegativeZero(float value) {
  return FloatToBits(value) << 1 == 0 ? BitsToFloat(0x80000000u) : value;
}

// Loads ranks [first, first + kTileRanks) of A for the tile's columns, and of B, transposed, for
// its rows; zeros outside.
__device__ __forceinline__ void LoadTiles(
    const MergeBlock& m, int64_t row0, int64_t col0, int64_t first, float* a, float* b) {
  const int thread = static_cast<int>(threadIdx.x);
  TANDEM_UNROLL_8
  for (int i = 0; i < kAFloats / kThreads; ++i) {
    const int k = (i * kThreads + thread) / kTileCols, col = (i * kThreads + thread) % kTileCols;
    const bool inside = first + k < m.rank && col0 + col < m.in;
    a[k * kTileCols + col] = inside ? m.a[(first + k) * m.in + col0 + col] : 0.0f;
  }
  TANDEM_UNROLL
  for (int i = 0; i < kTileRows * kTileRanks / kThreads; ++i) {
    const int row = (i * kThreads + thread) / kTileRanks, k = (i * kThreads + thread) % kTileRanks;
    const bool inside = first + k < m.rank && row0 + row < m.rows;
    b[k * kBStride + row] = inside ? m.b[(row0 + row) * m.rank + first + k] : 0.0f;
  }
}

template <typename Base, typename Out>
__global__ void __launch_bounds__(kThreads, 2) MergeTiles(MergeBlock m, float scaling) {
  auto* const a = reinterpret_cast<float*>(SharedMemory());
  float* const b = a + kAFloats;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = static_cast<int>(threadIdx.x) / 32 * kRowsOfWarp;
  const int64_t row0 = int64_t{blockIdx.y} * kTileRows, col0 = int64_t{blockIdx.x} * kTileCols;
  float products[kRowsOfWarp][kColsOfLane] = {};
  for (int64_t first = 0; first < m.rank; first += kTileRanks) {
    if (first > 0) __syncthreads();
    LoadTiles(m, row0, col0, first, a, b);
    __syncthreads();
    const int ranks = m.rank - first < kTileRanks ? static_cast<int>(m.rank - first) : kTileRanks;
    TANDEM_ROLLED
    for (int k = 0; k < ranks; ++k) {
      const Floats8 factors = LoadFloats8(b + k * kBStride + first_row);
      TANDEM_UNROLL
      for (int c = 0; c < kColsOfLane; ++c) {
        const float column = a[k * kTileCols + c * 32 + lane];
        TANDEM_UNROLL
        for (int r = 0; r < kRowsOfWarp; ++r) {
          products[r][c] = fmaf(factors.of[r], column, products[r][c]);
        }
      }
    }
  }
  TANDEM_UNROLL
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int64_t row = row0 + first_row + r;
    if (row >= m.rows) continue;
    TANDEM_UNROLL
    for (int c = 0; c < kColsOfLane; ++c) {
      const int64_t col = col0 + c * 32 + lane;
      if (col >= m.in) continue;
      const int64_t at = row * m.in + col;
      const float weight = AsFloat(static_cast<const Base*>(m.base)[at]);
      Put(static_cast<Out*>(m.out) + at, weight + NegativeZero(products[r][c] * scaling));
    }
  }
}

template <typename Base>
void LaunchMergeOf(CudaStream stream, const MergeBlock& m) {
  const LaunchShape shape = {
      .grid_x = static_cast<unsigned>((m.in + kTileCols - 1) / kTileCols),
      .grid_y = static_cast<unsigned>((m.rows + kTileRows - 1) / kTileRows),
      .threads = kThreads,
      .shared_bytes = kSharedBytes,
  };
  const auto scaling = static_cast<float>(m.scaling);
  if (m.out_dtype == DType::kFloat32) {
    Launch(MergeTiles<Base, float>, shape, stream, m, scaling);
  } else {
    Launch(MergeTiles<Base, uint16_t>, shape, stream, m, scaling);
  }
}

// A thread has four elements that are a block's width apart.
constexpr int kOfThread = 4;
constexpr int64_t kOfBlock = int64_t{kThreads} * kOfThread;

__global__ void __launch_bounds__(kThreads)
    WidenArray(const uint16_t* values, float* wide, int64_t count) {
  TANDEM_UNROLL
  for (int i = 0; i < kOfThread; ++i) {
    const int64_t at = int64_t{blockIdx.x} * kOfBlock + i * kThreads + threadIdx.x;
    if (at < count) wide[at] = FromBf16Bits(values[at]);
  }
}

}  // namespace

void LaunchMerge(CudaStream stream, const MergeBlock& block) {
  if (block.rows == 0 || block.in == 0) return;
  if (block.base_dtype == DType::kFloat32) {
    LaunchMergeOf<float>(stream, block);
  } else {
    LaunchMergeOf<uint16_t>(stream, block);
  }
}

void LaunchWiden(CudaStream stream, const Bf16* values, float* wide, int64_t count) {
  if (count == 0) return;
  const LaunchShape shape = {.grid_x = static_cast<unsigned>((count + kOfBlock - 1) / kOfBlock),
                             .threads = kThreads};
  Launch(WidenArray, shape, stream, values, wide, count);
}

}  // namespace tandem
