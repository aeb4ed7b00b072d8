// Device code that the attention kernels share: fragments from tiles in shared memory, and the
// softmax of a segment. Elements are bf16; a tile is [rows][kDim], swizzled (Swizzled).
#pragma once

#include "common/device/cuda/kernel.h"
#include "common/ops/cuda/attention/attention_layout.h"

namespace tandem::attention {

__device__ __forceinline__ int LaneId() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int WarpId() { return static_cast<int>(threadIdx.x) / 32; }

template <int kDim>
__device__ __forceinline__ uint16_t* ChunkAt(uint16_t* tile, int row, int chunk) {
  return tile + Swizzled(row, chunk, kDim / 8) * 8;
}
template <int kDim>
__device__ __forceinline__ const uint16_t* ChunkAt(const uint16_t* tile, int row, int chunk) {
  return tile + Swizzled(row, chunk, kDim / 8) * 8;
}

// A operand: rows first to first + 15, columns 16 * step to 16 * step + 15.
template <int kDim>
__device__ __forceinline__ void LoadRows(uint32_t (&a)[4],
                                         const uint16_t* tile,
                                         int first,
                                         int step) {
  const int lane = LaneId();
  LdMatrix4(a, ChunkAt<kDim>(tile, first + lane % 16, step * 2 + lane / 16));
}

// B operands of a product with the transposed tile: rows first to first + 7 in b[0], first + 8 to
// first + 15 in b[1], summed over columns 16 * step to 16 * step + 15.
template <int kDim>
__device__ __forceinline__ void LoadTransposedPair(uint32_t (&b)[2][2],
                                                   const uint16_t* tile,
                                                   int first,
                                                   int step) {
  const int lane = LaneId();
  uint32_t r[4];
  LdMatrix4(r, ChunkAt<kDim>(tile, first + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
  b[0][0] = r[0];
  b[0][1] = r[1];
  b[1][0] = r[2];
  b[1][1] = r[3];
}

// B operands of a product with the tile: columns 16 * pair to 16 * pair + 7 in b[0], the next 8 in
// b[1], summed over rows first to first + 15.
template <int kDim>
__device__ __forceinline__ void LoadPair(uint32_t (&b)[2][2],
                                         const uint16_t* tile,
                                         int first,
                                         int pair) {
  const int lane = LaneId();
  uint32_t r[4];
  LdMatrix4Transposed(r, ChunkAt<kDim>(tile, first + lane % 16, pair * 2 + lane / 16));
  b[0][0] = r[0];
  b[0][1] = r[1];
  b[1][0] = r[2];
  b[1][1] = r[3];
}

// sums [16, 8 kColumns / 8] += weights [16, 16 kSteps] tile [16 kSteps, kDim]. The weights are fp32
// fragments of 8 columns each and are rounded to bf16 here.
template <int kDim, int kSteps>
__device__ __forceinline__ void AddWeighted(float (&sums)[kDim / 8][4],
                                            const float (&weights)[2 * kSteps][4],
                                            const uint16_t* tile) {
  TANDEM_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    const float(&low)[4] = weights[2 * step];
    const float(&high)[4] = weights[2 * step + 1];
    const uint32_t a[4] = {PackBf16(low[0], low[1]), PackBf16(low[2], low[3]),
                           PackBf16(high[0], high[1]), PackBf16(high[2], high[3])};
    TANDEM_UNROLL
    for (int pair = 0; pair < kDim / 16; ++pair) {
      uint32_t b[2][2];
      LoadPair<kDim>(b, tile, step * 16, pair);
      MmaBf16(sums[2 * pair], a, b[0]);
      MmaBf16(sums[2 * pair + 1], a, b[1]);
    }
  }
}

// The maximum and the sum over the four lanes that hold a row, with the same bits in every lane.
__device__ __forceinline__ float RowMax(float value) {
  value = fmaxf(value, ShuffleXor(value, 1));
  return fmaxf(value, ShuffleXor(value, 2));
}
__device__ __forceinline__ float RowSum(float value) {
  value += ShuffleXor(value, 1);
  return value + ShuffleXor(value, 2);
}

__device__ __forceinline__ float MinusInfinity() { return BitsToFloat(0xff800000u); }

// One of the two rows of a lane in an online softmax: weights are 2^(score - max).
struct OnlineRow {
  float max = MinusInfinity();  // so far, of scaled scores
  float sum = 0.0f;             // of this lane's weights
};

// Adds the scores of a row (elements first and first + 1 of each fragment; -infinity if masked) and
// turns them into weights. Returns the factor for earlier sums: 1 if no score is above the maximum
// so far, as when all are masked.
template <int kFragments>
__device__ __forceinline__ float TakeScores(OnlineRow& row,
                                            float (&scores)[kFragments][4],
                                            int first,
                                            float scale_log2) {
  float highest = MinusInfinity();
  TANDEM_UNROLL
  for (int j = 0; j < kFragments; ++j) {
    highest = fmaxf(highest, fmaxf(scores[j][first], scores[j][first + 1]));
  }
  const float max = fmaxf(row.max, RowMax(highest) * scale_log2);
  // If all scores so far are masked, weights are 0 and not NaN.
  const float offset = max == MinusInfinity() ? 0.0f : max;
  const float earlier = exp2f(row.max - offset);
  float sum = 0.0f;
  TANDEM_UNROLL
  for (int j = 0; j < kFragments; ++j) {
    scores[j][first] = exp2f(fmaf(scores[j][first], scale_log2, -offset));
    scores[j][first + 1] = exp2f(fmaf(scores[j][first + 1], scale_log2, -offset));
    sum += scores[j][first] + scores[j][first + 1];
  }
  row.max = max;
  row.sum = row.sum * earlier + sum;
  return earlier;
}

// The factors for adding the next segment's results: sum = sum * earlier + next * later.
struct SegmentFactors {
  float max, earlier, later;
};
__device__ __forceinline__ SegmentFactors FactorsOf(float max, float next_max) {
  const float both = fmaxf(max, next_max);
  return {both, exp2f(max - both), exp2f(next_max - both)};
}
__device__ __forceinline__ float AddSegment(const SegmentFactors& factors, float sum, float next) {
  return fmaf(next, factors.later, sum * factors.earlier);
}

// Adds the scores [16, 64] of a warp's rows with the keys from `first_position` on to the rows'
// online softmax: keys after a row's position are masked, scores become weights, and earlier sums
// are scaled to match. Rows are in order: row 0 of a lane does not come after row 1.
template <int kDim, typename Rows>
__device__ __forceinline__ void WeighTile(Rows& rows,
                                          float (&scores)[kTileKeys / 8][4],
                                          int first_position,
                                          float scale_log2) {
  if (first_position + kTileKeys - 1 > rows.position[0]) {
    const int position = first_position + LaneId() % 4 * 2;
    TANDEM_UNROLL
    for (int j = 0; j < kTileKeys / 8; ++j) {
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (position + j * 8 + i % 2 > rows.position[i / 2]) scores[j][i] = MinusInfinity();
      }
    }
  }
  const float factors[2] = {TakeScores(rows.row[0], scores, 0, scale_log2),
                            TakeScores(rows.row[1], scores, 2, scale_log2)};
  TANDEM_UNROLL
  for (int j = 0; j < kDim / 8; ++j) {
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) rows.sums[j][i] *= factors[i / 2];
  }
}

}  // namespace tandem::attention
