#include "common/ops/cpu/sample_row.h"

#include <algorithm>

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
  const float target = row.uniform * stats.sum;
  // The last chunk with a possible token, if rounding leaves the sum below the target: tokens of
  // later chunks may be masked.
  ChunkChoice last;
  for (; choice.chunk < count; ++choice.chunk) {
    float scale = 0;
    kernels.exp_logits(&chunks[choice.chunk].max, 1, 1.0f, stats.max, &scale);
    const float weight = chunks[choice.chunk].sum * scale;
    if (choice.before + weight > target) return choice;
    if (weight != 0.0f) last = choice;
    choice.before += weight;
  }
  return last;
}

int64_t ChooseInChunk(const KernelSet& kernels,
                      const SampleRow& row,
                      const ChunkChoice& choice,
                      const RowStats& stats,
                      const float* logits,
                      int64_t cols,
                      float* scratch) {
  if (row.temperature == 0.0f) return std::max_element(logits, logits + cols) - logits;
  const float target = row.uniform * stats.sum;
  kernels.exp_logits(logits, cols, InverseTemperature(row.temperature), stats.max, scratch);
  float before = choice.before;
  int64_t last = 0;  // the last possible token, if rounding leaves the sum below the target
  for (int64_t i = 0; i < cols; ++i) {
    if (scratch[i] == 0.0f) continue;
    last = i;
    before += scratch[i];
    if (before > target) break;
  }
  return last;
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
  const double target = static_cast<double>(row.uniform) * total;
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
