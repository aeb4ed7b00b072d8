// Chooses a token of one row from its logits. All arithmetic is fixed by the row alone.
#pragma once

#include <cstdint>

#include "common/ops/cpu/kernel_set.h"
#include "common/ops/ops_types.h"

namespace tandem {

// The temperature a row is scored at: greedy rows at 1.
inline float ScoringTemperature(float temperature) {
  return temperature == 0.0f ? 1.0f : temperature;
}

// `logits` [vocab_limit] of the row; `chunks` and `stats` are its log-softmax statistics at the
// scoring temperature; `scratch` [kVocabChunk].
int32_t ChooseToken(const KernelSet& kernels,
                    const SampleRow& row,
                    const float* logits,
                    int64_t vocab_limit,
                    const ChunkStats* chunks,
                    const RowStats& stats,
                    float* scratch);

// (logit / T - max) - log(sum): the one formula of a token's log-prob.
inline float LogProb(float logit, float temperature, const RowStats& stats) {
  return (logit / temperature - stats.max) - stats.log_sum;
}

}  // namespace tandem
