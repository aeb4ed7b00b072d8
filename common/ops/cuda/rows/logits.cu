#include "common/ops/cuda/rows/element_math.h"
#include "common/ops/cuda/rows/logits.h"

namespace tandem {
namespace {

constexpr int kChunk = static_cast<int>(kCudaVocabChunk);
// Sixteen lanes handle a row's chunk, like a vector on a CPU; lane l has ids l, l + 16, ...
constexpr int kLanes = 16;
constexpr int kHeld = kChunk / kLanes;
constexpr int kThreads = 128;
constexpr int kChunksOfBlock = kThreads / kLanes;

__device__ __forceinline__ float Larger(float a, float b) { return a > b ? a : b; }

// The sum and the maximum over a half-warp's lanes, in the order of a vector on a CPU.
__device__ __forceinline__ float SumLanes(float value) {
  TANDEM_UNROLL
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) value += ShuffleXor(value, lanes);
  return value;
}
__device__ __forceinline__ float MaxLanes(float value) {
  TANDEM_UNROLL
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    value = Larger(value, ShuffleXor(value, lanes));
  }
  return value;
}

struct SumsCall {
  const float* logits;
  int64_t stride;
  int first_chunk, chunks, all_chunks;
  int vocab_limit;
  const ScoredRow* rows;
  LogitSums* sums;
  float* target_logits;
};

__global__ void __launch_bounds__(kThreads) ChunkSums(SumsCall call) {
  const float kInfinity = BitsToFloat(0x7f800000u);
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  int local =
      static_cast<int>(blockIdx.y) * kChunksOfBlock + static_cast<int>(threadIdx.x) / kLanes;
  const bool stores = local < call.chunks;
  if (!stores) local = call.chunks - 1;  // its lanes must still take part in shuffles
  const int chunk = call.first_chunk + local;
  const int left = call.vocab_limit - chunk * kChunk;
  const int n = left < kChunk ? left : kChunk;
  const float* const logits = call.logits + row * call.stride + local * kChunk;
  const ScoredRow scored = call.rows[row];

  float x[kHeld];
  float max = -kInfinity;
  TANDEM_UNROLL
  for (int i = 0; i < kHeld; ++i) {
    const int id = lane + i * kLanes;
    x[i] = id < n ? logits[id] * scored.inverse_temperature : -kInfinity;
    max = Larger(max, x[i]);
  }
  max = MaxLanes(max);
  float sum = 0, weighted = 0;
  TANDEM_UNROLL
  for (int i = 0; i < kHeld; ++i) {
    // A masked logit is -inf, also where all of its chunk are.
    const float shifted = x[i] == -kInfinity ? -kInfinity : x[i] - max;
    const float e = ExpOfNegative(shifted);
    sum += e;
    // -inf times the zero weight of a masked or missing id would be NaN.
    weighted = fmaf(e, lane + i * kLanes < n && shifted != -kInfinity ? shifted : 0.0f, weighted);
  }
  sum = SumLanes(sum);
  weighted = SumLanes(weighted);
  if (!stores || lane != 0) return;
  call.sums[row * call.all_chunks + chunk] = {max, sum, weighted};
  const int target = scored.target - chunk * kChunk;
  if (target >= 0 && target < n) call.target_logits[row] = logits[target];
}

// One warp per row. Lanes prepare the terms of 32 chunks, which all lanes then add in order.
__global__ void __launch_bounds__(kThreads) Scores(int64_t rows,
                                                   int chunks,
                                                   const ScoredRow* scored,
                                                   const LogitSums* all_sums,
                                                   const float* target_logits,
                                                   RowScore* scores) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int64_t row = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const bool stores = row < rows;
  if (!stores) row = rows - 1;
  const LogitSums* const sums = all_sums + row * chunks;
  float max = sums[0].max;
  for (int i = lane; i < chunks; i += 32) max = Larger(sums[i].max, max);
  TANDEM_UNROLL
  for (int lanes = 16; lanes > 0; lanes /= 2) max = Larger(ShuffleXor(max, lanes), max);
  float sum = 0, weighted = 0;
  for (int first = 0; first < chunks; first += 32) {
    float part = 0, part_weighted = 0;
    if (first + lane < chunks) {
      const LogitSums chunk = sums[first + lane];
      const float shift = chunk.max - max;
      const float scale = ExpOfNegative(shift);
      part = chunk.sum * scale;
      if (scale != 0.0f) part_weighted = scale * (chunk.weighted + shift * chunk.sum);
    }
    const int n = chunks - first < 32 ? chunks - first : 32;
    for (int i = 0; i < n; ++i) {
      sum += Shuffle(part, i);
      weighted += Shuffle(part_weighted, i);
    }
  }
  if (!stores || lane != 0) return;
  RowScore score;
  score.stats.max = max;
  score.stats.sum = sum;
  score.stats.log_sum = static_cast<float>(log(static_cast<double>(sum)));
  score.stats.entropy = score.stats.log_sum - weighted / sum;
  const ScoredRow of = scored[row];
  score.log_prob = 0;
  if (of.target >= 0) {
    score.log_prob = (target_logits[row] * of.inverse_temperature - max) - score.stats.log_sum;
  }
  scores[row] = score;
}

}  // namespace

void LaunchLogitSums(CudaStream stream,
                     const LogitsBlock& block,
                     const ScoredRow* rows,
                     LogitSums* sums,
                     float* target_logits) {
  if (block.rows == 0) return;
  const SumsCall call = {.logits = block.logits,
                         .stride = block.stride,
                         .first_chunk = static_cast<int>(block.first_chunk),
                         .chunks = static_cast<int>(block.chunks),
                         .all_chunks = static_cast<int>(CudaVocabChunks(block.vocab_limit)),
                         .vocab_limit = static_cast<int>(block.vocab_limit),
                         .rows = rows,
                         .sums = sums,
                         .target_logits = target_logits};
  Launch(ChunkSums,
         {.grid_x = static_cast<unsigned>(block.rows),
          .grid_y = static_cast<unsigned>((block.chunks + kChunksOfBlock - 1) / kChunksOfBlock),
          .threads = kThreads},
         stream, call);
}

void LaunchRowScores(CudaStream stream,
                     int64_t rows,
                     int64_t vocab_limit,
                     const ScoredRow* scored,
                     const LogitSums* sums,
                     const float* target_logits,
                     RowScore* scores) {
  if (rows == 0) return;
  Launch(Scores,
         {.grid_x = static_cast<unsigned>((rows + kThreads / 32 - 1) / (kThreads / 32)),
          .threads = kThreads},
         stream, rows, static_cast<int>(CudaVocabChunks(vocab_limit)), scored, sums, target_logits,
         scores);
}

}  // namespace tandem
