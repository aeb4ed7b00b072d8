// Between wide rows and the few values of a rank: t = x Aᵀ and dt = dy B by tensor cores, and what
// t and dt give back to wide rows by fused multiply-adds (adapter_kernels.h).
// tensor cores: ToRank
#include "common/ops/cuda/adapter_kernels.h"
#include "common/ops/cuda/rows/element_math.h"

namespace tandem {
namespace {

struct Part {
  int first, last;  // columns of the wide matrix
};

struct RankCall {
  uint16_t* wide;
  int64_t wide_stride;
  const uint16_t* values;
  float* t;
  int rows, cols, parts, rank;
  Part part[LinearAdapter::kParts];
  float scale;
};

// Without an index, because the call would be copied to local memory for that.
__device__ __forceinline__ Part PartAt(const RankCall& call, int part) {
  static_assert(LinearAdapter::kParts == 3);
  if (part == 0) return call.part[0];
  return part == 1 ? call.part[1] : call.part[2];
}

constexpr int kWarps = 8;
constexpr int kRowTile = 32;
constexpr int kChunk = 32;  // columns of a warp's step: 8 for each of four threads

// Two pairs of columns of four at a time, which are a step's k in the same order in both operands.
struct Eight {
  uint32_t of[4];
};
__device__ __forceinline__ Eight LoadEight(const uint16_t* from, bool valid) {
  if (!valid) return {{0, 0, 0, 0}};
  const Words4 words = LoadWords(from);
  return {{words.x, words.y, words.z, words.w}};
}

// A thread's eight columns of value k, starting at `col`: 16 bytes of A, or eight rows of B.
template <RankMatrix kMatrix>
__device__ __forceinline__ Eight
LoadValues(const RankCall& call, int part, int k, int col, bool valid) {
  valid = valid && k < call.rank;
  if constexpr (kMatrix == RankMatrix::kA) {
    const int64_t row = int64_t{part} * call.rank + k;
    return LoadEight(call.values + row * call.cols + col, valid);
  } else {
    Eight eight = {{0, 0, 0, 0}};
    if (!valid) return eight;
    const uint16_t* const from = call.values + int64_t{col} * call.rank + k;
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = from[int64_t{2 * i} * call.rank];
      const uint32_t high = from[int64_t{2 * i + 1} * call.rank];
      eight.of[i] = high << 16 | low;
    }
    return eight;
  }
}

// A block handles 32 rows and kFrags * 8 values of one part; its warps take the part's columns in
// turns.
template <RankMatrix kMatrix, int kFrags>
__global__ void __launch_bounds__(kWarps * 32) ToRank(RankCall call) {
  TANDEM_SHARED(partial, float[kWarps][kRowTile][kFrags * 8]);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4, quad = lane % 4;
  const int tiles = (call.rank + kFrags * 8 - 1) / (kFrags * 8);
  const int part = static_cast<int>(blockIdx.x) / tiles;
  const int k0 = static_cast<int>(blockIdx.x) % tiles * kFrags * 8;
  const int row0 = static_cast<int>(blockIdx.y) * kRowTile;
  const Part columns = PartAt(call, part);
  float sums[2][kFrags][4] = {};
  for (int at = columns.first + warp * kChunk; at < columns.last; at += kWarps * kChunk) {
    const int col = at + quad * 8;
    const bool in = col < columns.last;
    Eight x[2][2];
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = row0 + i * 8 + group;
      x[i / 2][i % 2] = LoadEight(call.wide + row * call.wide_stride + col, in && row < call.rows);
    }
    TANDEM_UNROLL
    for (int j = 0; j < kFrags; ++j) {
      const Eight w = LoadValues<kMatrix>(call, part, k0 + j * 8 + group, col, in);
      TANDEM_UNROLL
      for (int i = 0; i < 2; ++i) {
        TANDEM_UNROLL
        for (int half = 0; half < 2; ++half) {
          const uint32_t a[4] = {x[i][0].of[half * 2], x[i][1].of[half * 2],
                                 x[i][0].of[half * 2 + 1], x[i][1].of[half * 2 + 1]};
          const uint32_t b[2] = {w.of[half * 2], w.of[half * 2 + 1]};
          MmaBf16(sums[i][j], a, b);
        }
      }
    }
  }
  TANDEM_UNROLL
  for (int i = 0; i < 2; ++i) {
    TANDEM_UNROLL
    for (int j = 0; j < kFrags; ++j) {
      TANDEM_UNROLL
      for (int e = 0; e < 4; ++e) {
        partial[warp][i * 16 + e / 2 * 8 + group][j * 8 + quad * 2 + e % 2] = sums[i][j][e];
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRowTile * kFrags * 8; i += kWarps * 32) {
    const int row = i / (kFrags * 8), k = i % (kFrags * 8);
    if (row0 + row >= call.rows || k0 + k >= call.rank) continue;
    float sum = partial[0][row][k];
    for (int w = 1; w < kWarps; ++w) sum += partial[w][row][k];
    const int64_t width = int64_t{call.parts} * call.rank;
    call.t[(row0 + row) * width + int64_t{part} * call.rank + k0 + k] = sum * call.scale;
  }
}

constexpr int kThreads = 256, kColumns = 128, kRankStep = 16;
constexpr int kRowsApart =
    kThreads / (kColumns / 8);  // a thread has a row and the one this far below it

struct alignas(16) FromRankShared {
  float values[kRankStep][kColumns];
  float t[kRowTile][kRankStep];
};

// The columns and values of a part that FromRank processes.
struct RankTile {
  int part, k0, col0;
  Part columns;
};

// `kRankStep` values of A or B as floats; zeros beyond the end.
template <RankMatrix kMatrix>
__device__ __forceinline__ void StageValues(const RankCall& call,
                                            const RankTile& tile,
                                            float (*values)[kColumns]) {
  for (int i = static_cast<int>(threadIdx.x); i < kRankStep * kColumns; i += kThreads) {
    // Neighbouring threads read neighbouring elements.
    const bool a = kMatrix == RankMatrix::kA;
    const int k = a ? i / kColumns : i % kRankStep, n = a ? i % kColumns : i / kRankStep;
    const int col = tile.col0 + n, of = tile.k0 + k;
    const bool valid = of < call.rank && col >= tile.columns.first && col < tile.columns.last;
    const int64_t at =
        a ? (int64_t{tile.part} * call.rank + of) * call.cols + col : int64_t{col} * call.rank + of;
    values[k][n] = valid ? FromBf16Bits(call.values[at]) : 0.0f;
  }
}

// A block handles 32 rows of 128 columns; a thread 8 columns of two rows.
template <RankMatrix kMatrix>
__global__ void __launch_bounds__(kThreads, 2) FromRank(RankCall call) {
  TANDEM_SHARED(shared, FromRankShared);
  const int place = static_cast<int>(threadIdx.x) % (kColumns / 8) * 8;
  const int mine = static_cast<int>(threadIdx.x) / (kColumns / 8);
  const int col0 = static_cast<int>(blockIdx.x) * kColumns, col = col0 + place;
  const int row0 = static_cast<int>(blockIdx.y) * kRowTile;
  const int64_t width = int64_t{call.parts} * call.rank;
  float chains[2][8] = {};
  for (int part = 0; part < call.parts; ++part) {
    const Part columns = PartAt(call, part);
    if (columns.last <= col0 || columns.first >= col0 + kColumns) continue;
    for (int k0 = 0; k0 < call.rank; k0 += kRankStep) {
      __syncthreads();
      StageValues<kMatrix>(call, {part, k0, col0, columns}, shared.values);
      for (int i = static_cast<int>(threadIdx.x); i < kRowTile * kRankStep; i += kThreads) {
        const int row = i / kRankStep, k = i % kRankStep;
        const bool valid = row0 + row < call.rows && k0 + k < call.rank;
        const int64_t at = (row0 + row) * width + int64_t{part} * call.rank + k0 + k;
        shared.t[row][k] = valid ? call.t[at] : 0.0f;
      }
      __syncthreads();
      if (col < columns.first || col >= columns.last) continue;
      const int steps = call.rank - k0 < kRankStep ? call.rank - k0 : kRankStep;
      for (int k = 0; k < steps; ++k) {
        const Floats8 w = LoadFloats8(shared.values[k] + place);
        const float low = shared.t[mine][k], high = shared.t[mine + kRowsApart][k];
        TANDEM_UNROLL
        for (int i = 0; i < 8; ++i) {
          chains[0][i] = fmaf(low, w.of[i], chains[0][i]);
          chains[1][i] = fmaf(high, w.of[i], chains[1][i]);
        }
      }
    }
  }
  if (col >= call.cols) return;
  TANDEM_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int row = row0 + mine + r * kRowsApart;
    if (row >= call.rows) continue;
    uint16_t* const at = call.wide + row * call.wide_stride + col;
    Floats8 sum = Widen(LoadWords(at));
    TANDEM_UNROLL
    for (int i = 0; i < 8; ++i) {
      const float d = chains[r][i] * call.scale;
      // NaN is propagated.
      sum.of[i] = fabsf(d) < 0x1p-126f ? sum.of[i] : sum.of[i] + d;
    }
    StoreWords(at, Round(sum));
  }
}

RankCall CallOf(const RankProduct& product, Matrix wide, float* t) {
  RankCall call = {.wide = static_cast<uint16_t*>(wide.data),
                   .wide_stride = wide.stride,
                   .values = reinterpret_cast<const uint16_t*>(product.values),
                   .t = t,
                   .rows = static_cast<int>(wide.rows),
                   .cols = static_cast<int>(wide.cols),
                   .parts = product.parts,
                   .rank = static_cast<int>(product.rank),
                   .part = {},
                   .scale = product.scale};
  for (int i = 0; i < product.parts; ++i) {
    const LinearAdapter::Part& part = product.part[i];
    const auto first = static_cast<int>(part.row);
    const Part of_b = {first, first + static_cast<int>(part.rows)};
    const Part of_a = {0, part.rows > 0 ? call.cols : 0};
    call.part[i] = product.matrix == RankMatrix::kA ? of_a : of_b;
  }
  return call;
}

unsigned Tiles(int64_t count, int64_t tile) {
  return static_cast<unsigned>((count + tile - 1) / tile);
}

template <RankMatrix kMatrix, int kFrags>
void StartToRank(CudaStream stream, const RankCall& call) {
  const unsigned tiles = Tiles(call.rank, kFrags * 8) * static_cast<unsigned>(call.parts);
  Launch(ToRank<kMatrix, kFrags>,
         {.grid_x = tiles, .grid_y = Tiles(call.rows, kRowTile), .threads = kWarps * 32}, stream,
         call);
}

// Handles as few values at a time as the rank has; their sums are independent.
template <RankMatrix kMatrix>
void StartToRank(CudaStream stream, const RankCall& call) {
  if (call.rank <= 8) return StartToRank<kMatrix, 1>(stream, call);
  if (call.rank <= 16) return StartToRank<kMatrix, 2>(stream, call);
  StartToRank<kMatrix, 4>(stream, call);
}

template <RankMatrix kMatrix>
void StartFromRank(CudaStream stream, const RankCall& call) {
  Launch(FromRank<kMatrix>,
         {.grid_x = Tiles(call.cols, kColumns),
          .grid_y = Tiles(call.rows, kRowTile),
          .threads = kThreads},
         stream, call);
}

}  // namespace

void LaunchToRank(CudaStream stream, const RankProduct& product, Matrix wide, float* t) {
  if (wide.rows == 0) return;
  const RankCall call = CallOf(product, wide, t);
  if (product.matrix == RankMatrix::kA) return StartToRank<RankMatrix::kA>(stream, call);
  StartToRank<RankMatrix::kB>(stream, call);
}

void LaunchFromRank(CudaStream stream, const RankProduct& product, const float* t, Matrix wide) {
  if (wide.rows == 0) return;
  const RankCall call = CallOf(product, wide, const_cast<float*>(t));
  if (product.matrix == RankMatrix::kA) return StartFromRank<RankMatrix::kA>(stream, call);
  StartFromRank<RankMatrix::kB>(stream, call);
}

}  // namespace tandem
