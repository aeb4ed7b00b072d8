// Draws for rows that top-k or top-p filter. The kept ids are those above a threshold of weight and
// a number of ids of exactly that weight, lowest ids first. The threshold is found by radix
// selection over the bits of the weights, whose order is that of the weights. All sums are of
// integers, so their order does not matter. One block per row.
#include "common/ops/cuda/rows/element_math.h"
#include "common/ops/cuda/rows/sampling.h"

namespace tandem {
namespace {

constexpr int kChunk = static_cast<int>(kCudaVocabChunk);
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kBins = 2048;
constexpr int kGroups = 32;  // of bins

// A row's weights, exp(logit / T - max), as bits and in units of 2^-44.
struct Weights {
  const float* logits;
  int count;
  float inverse_temperature, max;

  // NaN counts as nothing.
  __device__ __forceinline__ uint32_t Bits(int id) const {
    const float weight = ExpOfNegative(logits[id] * inverse_temperature - max);
    return weight > 0.0f ? FloatToBits(weight) : 0;
  }
};
__device__ __forceinline__ uint64_t Units(uint32_t bits) {
  return static_cast<uint64_t>(BitsToFloat(bits) * 17592186044416.0f);
}

// Ids with more weight than `bits`, and the first `ties` ids with exactly that weight.
struct Kept {
  uint32_t bits = 0;
  uint64_t ties = 0;
};

struct Shared {
  uint64_t bins[kBins];
  uint64_t groups[kGroups];
  uint64_t total;
  uint64_t above;  // the sum above the bin that was found
  int bin;         // -1: the sum of all bins is too small
  int chunk;
  uint64_t before, target, ties;
};

// The highest bin at which the sum from the top, `above` included, reaches `need`.
__device__ void FindBin(Shared& shared, uint64_t above, uint64_t need) {
  constexpr int kOfGroup = kBins / kGroups;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kGroups) {
    uint64_t sum = 0;
    for (int i = 0; i < kOfGroup; ++i) sum += shared.bins[thread * kOfGroup + i];
    shared.groups[thread] = sum;
  }
  __syncthreads();
  if (thread == 0) {
    int group = kGroups - 1;
    while (group >= 0 && above + shared.groups[group] < need) above += shared.groups[group--];
    int bin = group < 0 ? -1 : group * kOfGroup + kOfGroup - 1;
    while (bin >= 0 && above + shared.bins[bin] < need) above += shared.bins[bin--];
    shared.bin = bin;
    shared.above = above;
  }
  __syncthreads();
}

struct Threshold {
  uint32_t bits;   // 0: the sum of all weights does not reach `need`
  uint64_t above;  // the sum of the ids above it
};

// The largest weight such that the ids with at least that weight, but not below `floor`, sum up to
// `need`. An id counts `kUnits ? its units : 1`.
template <bool kUnits>
__device__ Threshold Select(const Weights& weights, uint32_t floor, uint64_t need, Shared& shared) {
  uint64_t above = 0;
  uint32_t prefix = 0;
  int prefix_shift = 31;  // weights are at most 1, so there is no bit above
  // Not a loop over a list of shifts, because ptxas would keep that list in local memory.
  for (int pass = 0; pass < 3; ++pass) {
    const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
    const uint32_t mask = (1u << (prefix_shift - shift)) - 1;
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads) shared.bins[i] = 0;
    __syncthreads();
    for (int id = static_cast<int>(threadIdx.x); id < weights.count; id += kThreads) {
      const uint32_t bits = weights.Bits(id);
      if (bits == 0 || bits < floor || bits >> prefix_shift != prefix) continue;
      AtomicAdd(&shared.bins[bits >> shift & mask], kUnits ? Units(bits) : uint64_t{1});
    }
    __syncthreads();
    FindBin(shared, above, need);
    if (shared.bin < 0) return {0, shared.above};
    above = shared.above;
    prefix = prefix << (prefix_shift - shift) | static_cast<uint32_t>(shared.bin);
    prefix_shift = shift;
  }
  return {prefix, above};
}

// The sum of the kept ids.
__device__ uint64_t TotalUnits(const Weights& weights, const Kept& kept, Shared& shared) {
  if (threadIdx.x == 0) shared.total = 0;
  __syncthreads();
  uint64_t sum = 0;
  for (int id = static_cast<int>(threadIdx.x); id < weights.count; id += kThreads) {
    const uint32_t bits = weights.Bits(id);
    if (bits > kept.bits) sum += Units(bits);
  }
  TANDEM_UNROLL
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += ShuffleXor(sum, lanes);
  if (threadIdx.x % 32 == 0) AtomicAdd(&shared.total, sum);
  __syncthreads();
  return shared.total + kept.ties * Units(kept.bits);
}

// Applies top-k, then keeps the shortest part of the result, from the top, that has top_p of its
// weight.
__device__ Kept Filter(const Weights& weights, const DrawRow& row, Shared& shared) {
  Kept kept;
  if (row.top_k > 0) {
    const auto need = static_cast<uint64_t>(row.top_k);
    const Threshold found = Select<false>(weights, 0, need, shared);
    if (found.bits != 0) kept = {found.bits, need - found.above};
  }
  if (row.top_p < 1.0f) {
    const double share =
        static_cast<double>(row.top_p) * static_cast<double>(TotalUnits(weights, kept, shared));
    const uint64_t need = share < 1.0 ? 1 : static_cast<uint64_t>(ceil(share));
    const Threshold found = Select<true>(weights, kept.bits, need, shared);
    if (found.bits != 0) {
      const uint64_t unit = Units(found.bits);
      const uint64_t ties = (need - found.above + unit - 1) / unit;
      const bool at_limit = found.bits == kept.bits && kept.ties < ties;
      kept = {found.bits, at_limit ? kept.ties : ties};
    }
  }
  return kept;
}

// Chooses the chunk where the cumulative weight of the kept ids passes uniform * total.
__device__ void ChooseChunk(
    const Weights& weights, const Kept& kept, double uniform, int chunks, Shared& shared) {
  auto* const sums = reinterpret_cast<uint64_t*>(SharedMemory());
  auto* const ties = reinterpret_cast<uint32_t*>(sums + chunks);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int chunk = static_cast<int>(threadIdx.x) / 32; chunk < chunks; chunk += kWarps) {
    const int first = chunk * kChunk;
    const int last = first + kChunk < weights.count ? first + kChunk : weights.count;
    uint64_t sum = 0;
    uint32_t equal = 0;
    for (int id = first + lane; id < last; id += 32) {
      const uint32_t bits = weights.Bits(id);
      if (bits > kept.bits) sum += Units(bits);
      equal += bits == kept.bits ? 1 : 0;
    }
    TANDEM_UNROLL
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      sum += ShuffleXor(sum, lanes);
      equal += ShuffleXor(equal, lanes);
    }
    if (lane == 0) {
      sums[chunk] = sum;
      ties[chunk] = equal;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint64_t unit = Units(kept.bits);
    uint64_t total = 0, left = kept.ties;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const uint64_t taken = ties[chunk] < left ? ties[chunk] : left;
      left -= taken;
      total += sums[chunk] + taken * unit;
    }
    shared.target = static_cast<uint64_t>(uniform * static_cast<double>(total));
    shared.before = 0;
    shared.ties = kept.ties;
    shared.chunk = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const uint64_t taken = ties[chunk] < shared.ties ? ties[chunk] : shared.ties;
      const uint64_t sum = sums[chunk] + taken * unit;
      if (shared.before + sum > shared.target) {
        shared.chunk = chunk;
        break;
      }
      shared.before += sum;
      shared.ties -= taken;
    }
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) FilteredDraw(const float* all_logits,
                                                         int64_t stride,
                                                         int vocab_limit,
                                                         int chunks,
                                                         const DrawRow* rows,
                                                         const RowScore* scores,
                                                         SampledToken* out) {
  TANDEM_SHARED(shared, Shared);
  const int64_t at = blockIdx.x;
  const DrawRow row = rows[at];
  if (row.kind != DrawKind::kFiltered) return;
  const RowStats stats = scores[at].stats;
  const Weights weights = {all_logits + at * stride, vocab_limit, row.inverse_temperature,
                           stats.max};
  const Kept kept = Filter(weights, row, shared);
  ChooseChunk(weights, kept, row.uniform, chunks, shared);
  const int first = shared.chunk * kChunk;
  const int last = first + kChunk < vocab_limit ? first + kChunk : vocab_limit;
  for (int id = first + static_cast<int>(threadIdx.x); id < last; id += kThreads) {
    shared.bins[id - first] = weights.Bits(id);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  int chosen = first;  // unchanged if the logits are NaN
  uint64_t before = shared.before, ties = shared.ties;
  for (int id = first; id < last && before <= shared.target; ++id) {
    const auto bits = static_cast<uint32_t>(shared.bins[id - first]);
    if (bits < kept.bits || bits == 0 || (bits == kept.bits && ties == 0)) continue;
    if (bits == kept.bits) --ties;
    before += Units(bits);
    chosen = id;
  }
  out[at] = {chosen, (weights.logits[chosen] * row.inverse_temperature - stats.max) - stats.log_sum,
             stats.entropy};
}

}  // namespace

void LaunchFilteredDraws(CudaStream stream,
                         const LogitsBlock& block,
                         const DrawRow* rows,
                         const RowScore* scores,
                         SampledToken* out) {
  if (block.rows == 0) return;
  const auto chunks = static_cast<unsigned>(CudaVocabChunks(block.vocab_limit));
  Launch(FilteredDraw,
         {.grid_x = static_cast<unsigned>(block.rows),
          .threads = kThreads,
          .shared_bytes = chunks * 12},
         stream, block.logits, block.stride, static_cast<int>(block.vocab_limit),
         static_cast<int>(chunks), rows, scores, out);
}

}  // namespace tandem
