#include "common/ops/cpu/sample_row.h"

#include <algorithm>
#include <vector>

#include "common/ops/cpu/vocab_chunks.h"

namespace tandem {
namespace {

int32_t ChooseGreedy(const float* logits, int64_t vocab_limit) {
  return static_cast<int32_t>(std::max_element(logits, logits + vocab_limit) - logits);
}

// Inverse CDF: the chunk by the chunks' sums, then the token inside it.
int32_t ChooseByTemperature(const KernelSet& kernels,
                            const SampleRow& row,
                            const float* logits,
                            int64_t vocab_limit,
                            const ChunkStats* chunks,
                            const RowStats& stats,
                            float* scratch) {
  const float target = row.uniform * stats.sum;
  const int64_t count = VocabChunks(vocab_limit);
  float before = 0;
  int64_t chunk = 0;
  for (;; ++chunk) {
    float scale = 0;
    kernels.exp_logits(&chunks[chunk].max, 1, 1.0f, stats.max, &scale);
    const float weight = chunks[chunk].sum * scale;
    if (chunk == count - 1 || before + weight > target) break;
    before += weight;
  }
  const int64_t base = chunk * kVocabChunk;
  const int64_t cols = ChunkColumns(chunk, vocab_limit);
  kernels.exp_logits(logits + base, cols, row.temperature, stats.max, scratch);
  int64_t last = 0;  // where rounding leaves the sum short of the target: the last possible token
  for (int64_t i = 0; i < cols; ++i) {
    if (scratch[i] == 0.0f) continue;
    last = i;
    before += scratch[i];
    if (before > target) break;
  }
  return static_cast<int32_t>(base + last);
}

// The ids that top-k, then top-p leave, ascending. Ties go to the lowest ids.
std::vector<int32_t> FilterIds(const SampleRow& row, const std::vector<float>& weights) {
  std::vector<int32_t> ids(weights.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const float wa = weights[static_cast<size_t>(a)], wb = weights[static_cast<size_t>(b)];
    return wa != wb ? wa > wb : a < b;
  });
  if (row.top_k > 0 && row.top_k < static_cast<int64_t>(ids.size())) {
    ids.resize(static_cast<size_t>(row.top_k));
  }
  if (row.top_p < 1.0f) {
    double total = 0;
    for (const int32_t id : ids) total += static_cast<double>(weights[static_cast<size_t>(id)]);
    double sum = 0;
    size_t keep = 0;
    while (keep < ids.size() && (keep == 0 || sum < static_cast<double>(row.top_p) * total)) {
      sum += static_cast<double>(weights[static_cast<size_t>(ids[keep++])]);
    }
    ids.resize(keep);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

int32_t ChooseFiltered(const KernelSet& kernels,
                       const SampleRow& row,
                       const float* logits,
                       int64_t vocab_limit,
                       const RowStats& stats) {
  std::vector<float> weights(static_cast<size_t>(vocab_limit));
  kernels.exp_logits(logits, vocab_limit, row.temperature, stats.max, weights.data());
  const std::vector<int32_t> ids = FilterIds(row, weights);
  double total = 0;
  for (const int32_t id : ids) total += static_cast<double>(weights[static_cast<size_t>(id)]);
  const double target = static_cast<double>(row.uniform) * total;
  double before = 0;
  int32_t chosen = ids.front();
  for (const int32_t id : ids) {
    const float weight = weights[static_cast<size_t>(id)];
    if (weight == 0.0f) continue;
    chosen = id;
    before += static_cast<double>(weight);
    if (before > target) break;
  }
  return chosen;
}

}  // namespace

int32_t ChooseToken(const KernelSet& kernels,
                    const SampleRow& row,
                    const float* logits,
                    int64_t vocab_limit,
                    const ChunkStats* chunks,
                    const RowStats& stats,
                    float* scratch) {
  if (row.temperature == 0.0f) return ChooseGreedy(logits, vocab_limit);
  const bool all = (row.top_k <= 0 || row.top_k >= vocab_limit) && row.top_p >= 1.0f;
  if (!all) return ChooseFiltered(kernels, row, logits, vocab_limit, stats);
  return ChooseByTemperature(kernels, row, logits, vocab_limit, chunks, stats, scratch);
}

}  // namespace tandem
