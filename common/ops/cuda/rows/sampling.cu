// Draws for rows that are greedy or not filtered: chooses a chunk by the chunks' sums and a token
// by the chunk's logits, both in ascending order. One block per row.
#include "common/ops/cuda/rows/element_math.h"
#include "common/ops/cuda/rows/sampling.h"

namespace tandem {
namespace {

constexpr int kChunk = static_cast<int>(kCudaVocabChunk);
constexpr int kThreads = 128;

struct Choice {
  int chunk;
  float before;  // sum of the chunks before it
};

// By a complete warp: the lowest chunk that has the row's largest logit.
__device__ Choice GreedyChunk(const LogitSums* sums, int chunks, float max) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto lowest = static_cast<uint32_t>(chunks - 1);
  for (int i = chunks - 1 - lane; i >= 0; i -= 32) {
    if (!(sums[i].max < max)) lowest = static_cast<uint32_t>(i);
  }
  TANDEM_UNROLL
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const uint32_t other = ShuffleXor(lowest, lanes);
    if (other < lowest) lowest = other;
  }
  return {static_cast<int>(lowest), 0.0f};
}

// By a whole warp: the chunk in which the cumulative weight passes `target`. If rounding leaves the
// sum below the target, it is the last one with a weight: tokens of later chunks may be masked.
__device__ Choice ChunkAt(const LogitSums* sums, int chunks, float max, float target) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Choice choice = {0, 0.0f}, last = choice;
  for (int first = 0; first < chunks; first += 32) {
    const int n = chunks - first < 32 ? chunks - first : 32;
    float mine = 0;
    if (lane < n) mine = sums[first + lane].sum * ExpOfNegative(sums[first + lane].max - max);
    for (int i = 0; i < n; ++i) {
      const float weight = Shuffle(mine, i);
      if (choice.before + weight > target) return choice;
      if (weight != 0.0f) last = choice;
      choice.before += weight;
      ++choice.chunk;
    }
  }
  return last;
}

// The index at which the sum of `before` and the chunk's weights, added one by one, passes
// `target`. If rounding leaves the sum below the target, it is the last one with a weight.
__device__ int DrawnIndex(const float* weights, int n, float before, float target) {
  constexpr int kRead = 16;  // weights that are read together
  int index = 0;
  bool passed = false;
  for (int first = 0; first < n && !passed; first += kRead) {
    float read[kRead];
    TANDEM_UNROLL
    for (int i = 0; i < kRead; ++i) read[i] = first + i < n ? weights[first + i] : 0.0f;
    TANDEM_UNROLL
    for (int i = 0; i < kRead; ++i) {
      if (passed || read[i] == 0.0f) continue;
      index = first + i;
      before += read[i];
      passed = before > target;
    }
  }
  return index;
}

__global__ void __launch_bounds__(kThreads) PlainDraw(const float* all_logits,
                                                      int64_t stride,
                                                      int vocab_limit,
                                                      int chunks,
                                                      const DrawRow* rows,
                                                      const LogitSums* all_sums,
                                                      const RowScore* scores,
                                                      SampledToken* out) {
  __shared__ float weights[kChunk];
  __shared__ Choice chosen;
  const int64_t at = blockIdx.x;
  const DrawRow row = rows[at];
  if (row.kind == DrawKind::kFiltered) return;
  const bool greedy = row.kind == DrawKind::kGreedy;
  const RowStats stats = scores[at].stats;
  const float target = row.uniform * stats.sum;
  const LogitSums* const sums = all_sums + at * chunks;
  if (threadIdx.x < 32) {
    const Choice choice =
        greedy ? GreedyChunk(sums, chunks, stats.max) : ChunkAt(sums, chunks, stats.max, target);
    if (threadIdx.x == 0) chosen = choice;
  }
  __syncthreads();
  const int first_id = chosen.chunk * kChunk;
  const int n = vocab_limit - first_id < kChunk ? vocab_limit - first_id : kChunk;
  const float* const logits = all_logits + at * stride + first_id;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    weights[i] =
        greedy ? logits[i] : ExpOfNegative(logits[i] * row.inverse_temperature - stats.max);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  int index = 0;
  if (greedy) {
    for (int i = 1; i < n; ++i) {
      if (weights[i] > weights[index]) index = i;
    }
  } else {
    index = DrawnIndex(weights, n, chosen.before, target);
  }
  out[at] = {first_id + index,
             (logits[index] * row.inverse_temperature - stats.max) - stats.log_sum, stats.entropy};
}

}  // namespace

void LaunchPlainDraws(CudaStream stream,
                      const LogitsBlock& block,
                      const DrawRow* rows,
                      const LogitSums* sums,
                      const RowScore* scores,
                      SampledToken* out) {
  if (block.rows == 0) return;
  Launch(PlainDraw, {.grid_x = static_cast<unsigned>(block.rows), .threads = kThreads}, stream,
         block.logits, block.stride, static_cast<int>(block.vocab_limit),
         static_cast<int>(CudaVocabChunks(block.vocab_limit)), rows, sums, scores, out);
}

}  // namespace tandem
