#include "common/ops/cuda/rows/element_math.h"
#include "common/weights/cuda/weight_pass.h"

namespace tandem {
namespace {

constexpr int kTileRanks = 32;  // of either matrix that a block sums

struct Floats4 {
  float of[4];
};
__device__ __forceinline__ Floats4 LoadFloats4(const float* from) {
  const Words4 words = LoadWords(from);
  return {{BitsToFloat(words.x), BitsToFloat(words.y), BitsToFloat(words.z), BitsToFloat(words.w)}};
}

// dB. A block sums 16 rows and 32 ranks. Each of its warps takes every eighth chunk of columns and
// keeps it transposed in its own part of shared memory; a lane sums four rows of four ranks.
constexpr int kWarps = 8;
constexpr int kTileRows = 16, kChunkCols = 16;
constexpr int kDwStride = kTileRows + 4,
              kAStride = kTileRanks + 4;  // padded, so that accesses spread over the banks
constexpr int kWarpFloats = kChunkCols * (kDwStride + kAStride);
constexpr int kTileFloats = kTileRows * kTileRanks;  // of a block's results
static_assert(kTileFloats <= kWarpFloats, "partial sums take the place of what was summed");

__device__ __forceinline__ void LoadChunk(
    const LoraGradientBlock& g, int64_t row0, int64_t rank0, int64_t col0, float* dw, float* a) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int col = lane % kChunkCols;
  const bool has_col = col0 + col < g.in;
  TANDEM_UNROLL
  for (int i = 0; i < kTileRows / 2; ++i) {
    const int row = lane / kChunkCols + 2 * i;
    const bool inside = has_col && row0 + row < g.rows;
    dw[col * kDwStride + row] = inside ? g.dw[(row0 + row) * g.in + col0 + col] : 0.0f;
  }
  TANDEM_UNROLL
  for (int i = 0; i < kTileRanks / 2; ++i) {
    const int k = lane / kChunkCols + 2 * i;
    const bool inside = has_col && rank0 + k < g.rank;
    a[col * kAStride + k] = inside ? g.a[(rank0 + k) * g.in + col0 + col] : 0.0f;
  }
}

__global__ void __launch_bounds__(kWarps * 32, 3) AddToB(LoraGradientBlock g, float scaling) {
  auto* const shared = reinterpret_cast<float*>(SharedMemory());
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = lane / 8 * 4, k = lane % 8 * 4;  // first of the lane's sums in the tile
  const int64_t row0 = int64_t{blockIdx.x} * kTileRows, rank0 = int64_t{blockIdx.y} * kTileRanks;
  float* const dw = shared + warp * kWarpFloats;
  float* const a = dw + kChunkCols * kDwStride;
  float sums[4][4] = {};
  for (int64_t col0 = int64_t{warp} * kChunkCols; col0 < g.in; col0 += kWarps * kChunkCols) {
    SyncWarp();
    LoadChunk(g, row0, rank0, col0, dw, a);
    SyncWarp();
    for (int col = 0; col < kChunkCols; ++col) {
      const Floats4 of_rows = LoadFloats4(dw + col * kDwStride + row);
      const Floats4 of_ranks = LoadFloats4(a + col * kAStride + k);
      TANDEM_UNROLL
      for (int r = 0; r < 4; ++r) {
        TANDEM_UNROLL
        for (int c = 0; c < 4; ++c) {
          sums[r][c] = fmaf(of_rows.of[r], of_ranks.of[c], sums[r][c]);
        }
      }
    }
  }
  __syncthreads();
  TANDEM_UNROLL
  for (int r = 0; r < 4; ++r) {
    TANDEM_UNROLL
    for (int c = 0; c < 4; ++c) {
      shared[warp * kTileFloats + (row + r) * kTileRanks + k + c] = sums[r][c];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTileFloats; i += kWarps * 32) {
    const int64_t to_row = row0 + i / kTileRanks, to_rank = rank0 + i % kTileRanks;
    if (to_row >= g.rows || to_rank >= g.rank) continue;
    float sum = shared[i];
    for (int other = 1; other < kWarps; ++other) sum += shared[other * kTileFloats + i];
    g.db[to_row * g.rank + to_rank] += scaling * sum;
  }
}

// dA. A lane has one column and sums all 32 ranks of it. Each warp of a block takes every sixteenth
// chunk of rows and keeps that part of s B in its own part of shared memory.
constexpr int kRowWarps = 16, kChunkRows = 8, kRanksAtOnce = 8;

__global__ void __launch_bounds__(kRowWarps * 32) AddToA(LoraGradientBlock g, float scaling) {
  auto* const shared = reinterpret_cast<float*>(SharedMemory());
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t col = int64_t{blockIdx.x} * 32 + lane, rank0 = int64_t{blockIdx.y} * kTileRanks;
  float* const b = shared + warp * kChunkRows * kTileRanks;
  float sums[kTileRanks] = {};
  for (int64_t row0 = int64_t{warp} * kChunkRows; row0 < g.rows; row0 += kRowWarps * kChunkRows) {
    float dw[kChunkRows];
    SyncWarp();
    TANDEM_UNROLL
    for (int i = 0; i < kChunkRows; ++i) {
      const int64_t row = row0 + i;
      const bool inside = row < g.rows;
      const bool has_rank = inside && rank0 + lane < g.rank;
      b[i * kTileRanks + lane] = has_rank ? scaling * g.b[row * g.rank + rank0 + lane] : 0.0f;
      dw[i] = inside && col < g.in ? g.dw[row * g.in + col] : 0.0f;
    }
    SyncWarp();
    TANDEM_UNROLL
    for (int i = 0; i < kChunkRows; ++i) {
      TANDEM_UNROLL
      for (int k = 0; k < kTileRanks; k += 8) {
        const Floats8 factors = LoadFloats8(b + i * kTileRanks + k);
        TANDEM_UNROLL
        for (int j = 0; j < 8; ++j) sums[k + j] = fmaf(factors.of[j], dw[i], sums[k + j]);
      }
    }
  }
  // Adds up the warps' sums, a few ranks at a time and each by one warp.
  TANDEM_UNROLL
  for (int first = 0; first < kTileRanks; first += kRanksAtOnce) {
    __syncthreads();
    TANDEM_UNROLL
    for (int j = 0; j < kRanksAtOnce; ++j) {
      shared[(warp * kRanksAtOnce + j) * 32 + lane] = sums[first + j];
    }
    __syncthreads();
    const int64_t k = rank0 + first + warp;
    if (warp >= kRanksAtOnce || k >= g.rank || col >= g.in) continue;
    float sum = shared[warp * 32 + lane];
    for (int other = 1; other < kRowWarps; ++other) {
      sum += shared[(other * kRanksAtOnce + warp) * 32 + lane];
    }
    g.da[k * g.in + col] += sum;
  }
}

unsigned Blocks(int64_t items, int64_t of_each) {
  return static_cast<unsigned>((items + of_each - 1) / of_each);
}

}  // namespace

void LaunchAddLoraGradients(CudaStream stream, const LoraGradientBlock& block) {
  if (block.rows == 0 || block.in == 0) return;
  const auto scaling = static_cast<float>(block.scaling);
  const unsigned ranks = Blocks(block.rank, kTileRanks);
  Launch(AddToB,
         {.grid_x = Blocks(block.rows, kTileRows),
          .grid_y = ranks,
          .threads = kWarps * 32,
          .shared_bytes = kWarps * kWarpFloats * sizeof(float)},
         stream, block, scaling);
  Launch(AddToA,
         {.grid_x = Blocks(block.in, 32),
          .grid_y = ranks,
          .threads = kRowWarps * 32,
          .shared_bytes = kRowWarps * kChunkRows * kTileRanks * sizeof(float)},
         stream, block, scaling);
}

}  // namespace tandem
