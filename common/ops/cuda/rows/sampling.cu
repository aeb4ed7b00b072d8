// Draws for rows that are greedy or not filtered: chooses a chunk by the chunks' sums and a token
// by the chunk's logits, both in ascending order and with sums in double, in the CPU's order
// (cpu/sample_row.cc). One block per row.
#include "common/ops/cuda/rows/element_math.h"
#include "common/ops/cuda/rows/sampling.h"

namespace tandem {
namespace {

constexpr int kChunk = static_cast<int>(kCudaVocabChunk);
constexpr int kThreads = 128;
constexpr int kGroup = 32;  // ids whose weights are added before the groups are: kDrawGroup
constexpr int kGroups = kChunk / kGroup;

struct Choice {
  int chunk;
  double share;  // of the chunk's weight that lies before the draw
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
  return {static_cast<int>(lowest), 0.0};
}

// By a complete warp: the weights of chunks first, ..., first + 31, one per lane; 0 beyond the
// last.
__device__ float ChunkWeight(const LogitSums* sums, int first, int chunks, float max) {
  const int chunk = first + static_cast<int>(threadIdx.x) % 32;
  return chunk < chunks ? sums[chunk].sum * ExpOfNegative(sums[chunk].max - max) : 0.0f;
}

// By a complete warp: the chunk in which the cumulative weight passes `uniform` times the sum of
// all. If rounding leaves the cumulative weight below that, it is the last one with a weight:
// tokens of later chunks may be masked.
__device__ Choice ChunkAt(const LogitSums* sums, int chunks, float max, double uniform) {
  double total = 0;
  for (int first = 0; first < chunks; first += 32) {
    const float mine = ChunkWeight(sums, first, chunks, max);
    for (int i = 0; i < 32; ++i) total += static_cast<double>(Shuffle(mine, i));
  }
  const double target = uniform * total;
  double before = 0;
  Choice last = {0, 0.0};
  for (int first = 0; first < chunks; first += 32) {
    const float mine = ChunkWeight(sums, first, chunks, max);
    for (int i = 0; i < 32; ++i) {
      const auto weight = static_cast<double>(Shuffle(mine, i));
      if (before + weight > target) return {first + i, (target - before) / weight};
      if (weight != 0) last = {first + i, 1.0};
      before += weight;
    }
  }
  return last;
}

struct Running {
  int index;
  double before;  // sum of what comes before the index
};

// Adds `values` to `before` one by one up to the first at which the sum passes `target`. If
// rounding leaves the sum below the target, that is the last one that is not 0.
template <typename Value>
__device__ Running PassingSum(const Value* values, int count, double before, double target) {
  Running last = {0, before};
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<double>(values[i]);
    if (value == 0) continue;
    last = {i, before};
    before += value;
    if (before > target) break;
  }
  return last;
}

// By one thread: the index of a chunk's weights at which their sum passes `share` of it. `groups`
// are the sums of each kGroup weights.
__device__ int DrawnIndex(const float* weights, const double* groups, int n, double share) {
  const int count = (n + kGroup - 1) / kGroup;
  double total = 0;
  for (int group = 0; group < count; ++group) total += groups[group];
  const double target = share * total;
  const Running group = PassingSum(groups, count, 0, target);
  const int first = group.index * kGroup;
  const int left = n - first < kGroup ? n - first : kGroup;
  return first + PassingSum(weights + first, left, group.before, target).index;
}

__global__ void __launch_bounds__(kThreads) PlainDraw(const float* all_logits,
                                                      int64_t stride,
                                                      int vocab_limit,
                                                      int chunks,
                                                      const DrawRow* rows,
                                                      const LogitSums* all_sums,
                                                      const RowScore* scores,
                                                      SampledToken* out) {
  TANDEM_SHARED(weights, float[kChunk]);
  TANDEM_SHARED(groups, double[kGroups]);
  TANDEM_SHARED(chosen, Choice);
  const int64_t at = blockIdx.x;
  const DrawRow row = rows[at];
  if (row.kind == DrawKind::kFiltered) return;
  const bool greedy = row.kind == DrawKind::kGreedy;
  const RowStats stats = scores[at].stats;
  const LogitSums* const sums = all_sums + at * chunks;
  if (threadIdx.x < 32) {
    const Choice choice = greedy ? GreedyChunk(sums, chunks, stats.max)
                                 : ChunkAt(sums, chunks, stats.max, row.uniform);
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
  if (!greedy && threadIdx.x < kGroups) {
    const int first = static_cast<int>(threadIdx.x) * kGroup;
    double sum = 0;
    for (int i = first; i < first + kGroup && i < n; ++i) sum += static_cast<double>(weights[i]);
    groups[threadIdx.x] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  int index = 0;
  if (greedy) {
    for (int i = 1; i < n; ++i) {
      if (weights[i] > weights[index]) index = i;
    }
  } else {
    index = DrawnIndex(weights, groups, n, chosen.share);
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
