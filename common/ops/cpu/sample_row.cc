#include "common/ops/cpu/sample_row.h"

#include <algorithm>

#include "common/ops/numerics_layout.h"

namespace tandem {
namespace {

// The most probable ids of [ids, ids + count), sorted in descending order only as far as requested;
// ties go to the lowest id.
class Ranking {
 public:
  Ranking(const float* weights, int32_t* ids, int64_t count)
      : weights_(weights), ids_(ids), count_(count) {}

  // Sorts ids[0, n).
  void Sort(int64_t n) {
    if (n <= sorted_) return;
    const auto before = [this](int32_t a, int32_t b) {
      return weights_[a] != weights_[b] ? weights_[a] > weights_[b] : a < b;
    };
    if (n < count_) std::nth_element(ids_ + sorted_, ids_ + n, ids_ + count_, before);
    std::sort(ids_ + sorted_, ids_ + n, before);
    sorted_ = n;
  }

  // The length of the shortest prefix that has `share` of the total weight; at least one.
  int64_t Prefix(double share) {
    double total = 0, sum = 0;
    for (int64_t i = 0; i < count_; ++i) total += static_cast<double>(weights_[ids_[i]]);
    for (int64_t n = 0; n < count_; ++n) {
      if (n > 0 && sum >= share * total) return n;
      if (n == sorted_) Sort(std::min(count_, std::max<int64_t>(64, n * 8)));
      sum += static_cast<double>(weights_[ids_[n]]);
    }
    return count_;
  }

 private:
  const float* weights_;
  int32_t* ids_;
  int64_t count_;
  int64_t sorted_ = 0;
};

// The ids that remain after top-k, then top-p, ascending; returns how many.
int64_t FilterIds(const SampleRow& row, int64_t vocab_limit, const float* weights, int32_t* ids) {
  int64_t count = 0;
  for (int64_t id = 0; id < vocab_limit; ++id) {
    if (weights[id] != 0.0f) ids[count++] = static_cast<int32_t>(id);
  }
  if (row.top_k > 0 && row.top_k < count) {
    Ranking(weights, ids, count).Sort(row.top_k);
    count = row.top_k;
  }
  if (row.top_p < 1.0f) {
    count = Ranking(weights, ids, count).Prefix(static_cast<double>(row.top_p));
  }
  std::sort(ids, ids + count);
  return count;
}

// Calls `visit` with every chunk's index and weight, until it returns false. A weight is relative
// to exp of the row's largest logit, as those of single ids are.
template <typename Visit>
void VisitChunkWeights(const KernelSet& kernels,
                       const ChunkStats* chunks,
                       int64_t count,
                       float max,
                       const Visit& visit) {
  constexpr int64_t kBlock = 64;  // chunks whose exponentials are computed together
  float maxima[kBlock], scales[kBlock];
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t n = std::min(kBlock, count - first);
    for (int64_t i = 0; i < n; ++i) maxima[i] = chunks[first + i].max;
    kernels.exp_logits(maxima, n, 1.0f, max, scales);
    for (int64_t i = 0; i < n; ++i) {
      const float weight = chunks[first + i].sum * scales[i];
      if (!visit(first + i, static_cast<double>(weight))) return;
    }
  }
}

struct RunningSum {
  int64_t index = 0;
  double before = 0;  // sum of what comes before the index
};

// Adds `values` to `before` one by one up to the first at which the sum passes `target`. If
// rounding leaves the sum below the target, that is the last one that is not 0.
template <typename Value>
RunningSum PassingSum(const Value* values, int64_t count, double before, double target) {
  RunningSum last{0, before};
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i];
    if (value == 0) continue;
    last = {i, before};
    before += value;
    if (before > target) break;
  }
  return last;
}

}  // namespace

bool IsFiltered(const SampleRow& row, int64_t vocab_limit) {
  const bool all = (row.top_k <= 0 || row.top_k >= vocab_limit) && row.top_p >= 1.0f;
  return row.temperature != 0.0f && !all;
}

ChunkChoice ChooseChunk(const KernelSet& kernels,
                        const SampleRow& row,
                        const ChunkStats* chunks,
                        int64_t count,
                        const RowStats& stats) {
  ChunkChoice choice;
  if (row.temperature == 0.0f) {
    while (choice.chunk < count - 1 && chunks[choice.chunk].max < stats.max) ++choice.chunk;
    return choice;
  }
  double total = 0;
  VisitChunkWeights(kernels, chunks, count, stats.max, [&](int64_t, double weight) {
    total += weight;
    return true;
  });
  const double target = row.uniform * total;
  // The last chunk with a possible token, if rounding leaves the sum below the target: tokens of
  // later chunks may be masked.
  ChunkChoice last;
  double before = 0;
  bool found = false;
  VisitChunkWeights(kernels, chunks, count, stats.max, [&](int64_t chunk, double weight) {
    found = before + weight > target;
    if (found) choice = {chunk, (target - before) / weight};
    if (weight != 0) last = {chunk, 1.0};
    before += weight;
    return !found;
  });
  return found ? choice : last;
}

int64_t ChooseInChunk(const KernelSet& kernels,
                      const SampleRow& row,
                      const ChunkChoice& choice,
                      const RowStats& stats,
                      const float* logits,
                      int64_t cols,
                      float* scratch) {
  if (row.temperature == 0.0f) return std::max_element(logits, logits + cols) - logits;
  kernels.exp_logits(logits, cols, InverseTemperature(row.temperature), stats.max, scratch);
  const int64_t groups = (cols + kDrawGroup - 1) / kDrawGroup;
  std::fill(scratch + cols, scratch + groups * kDrawGroup, 0.0f);
  // Each group is added in ascending order. All groups advance together, as one addition after the
  // other would wait for the one before.
  double sums[kVocabChunk / kDrawGroup] = {};
  for (int64_t i = 0; i < kDrawGroup; ++i) {
    for (int64_t group = 0; group < groups; ++group) {
      sums[group] += static_cast<double>(scratch[group * kDrawGroup + i]);
    }
  }
  double total = 0;
  for (int64_t group = 0; group < groups; ++group) total += sums[group];
  const double target = choice.share * total;
  const RunningSum group = PassingSum(sums, groups, 0, target);
  const int64_t first = group.index * kDrawGroup;
  return first + PassingSum(scratch + first, kDrawGroup, group.before, target).index;
}

int32_t ChooseFiltered(const KernelSet& kernels,
                       const SampleRow& row,
                       const RowStats& stats,
                       const float* logits,
                       int64_t vocab_limit,
                       float* weights,
                       int32_t* ids) {
  kernels.exp_logits(logits, vocab_limit, InverseTemperature(row.temperature), stats.max, weights);
  const int64_t count = FilterIds(row, vocab_limit, weights, ids);
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += static_cast<double>(weights[ids[i]]);
  const double target = row.uniform * total;
  double before = 0;
  int32_t chosen = 0;  // unchanged if the logits are NaN
  for (int64_t i = 0; i < count; ++i) {
    chosen = ids[i];
    before += static_cast<double>(weights[chosen]);
    if (before > target) break;
  }
  return chosen;
}

}  // namespace tandem
