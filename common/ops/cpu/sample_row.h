// Chooses a token of one row from its log-softmax statistics and some of its logits. The arithmetic
// depends on the row alone.
#pragma once

#include <cstdint>

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/ops_types.h"

namespace tandem {

// Whether top-k or top-p may exclude ids: such a row needs all of its logits.
bool IsFiltered(const SampleRow& row, int64_t vocab_limit);

// The vocabulary chunk that contains the token of an unfiltered row, and where in the chunk's
// weight the draw falls. `chunks` [VocabChunks] and `stats` are at the scoring temperature. All
// sums over weights are in double, so that ids of any probability that the uniform can tell from 0
// are drawn as often as they should be; docs/reference/numerics.md says in which order.
struct ChunkChoice {
  int64_t chunk = 0;
  double share = 0;  // of the chunk's weight that lies before the draw, in [0, 1]
};
ChunkChoice ChooseChunk(const KernelSet& kernels,
                        const SampleRow& row,
                        const ChunkStats* chunks,
                        int64_t count,
                        const RowStats& stats);

// The token's index among the `cols` logits of the chosen chunk; `scratch` [kVocabChunk].
int64_t ChooseInChunk(const KernelSet& kernels,
                      const SampleRow& row,
                      const ChunkChoice& choice,
                      const RowStats& stats,
                      const float* logits,
                      int64_t cols,
                      float* scratch);

// Chooses the token of a filtered row from its logits [vocab_limit]; `weights` and `ids` are
// scratch of the same size.
int32_t ChooseFiltered(const KernelSet& kernels,
                       const SampleRow& row,
                       const RowStats& stats,
                       const float* logits,
                       int64_t vocab_limit,
                       float* weights,
                       int32_t* ids);

// (logit / T - max) - log(sum): a token's log-prob, wherever a CPU computes one. On a GPU
// common/ops/cuda/rows/logits.cu has the same formula in the same order.
inline float LogProb(float logit, float inverse_temperature, const RowStats& stats) {
  return (logit * inverse_temperature - stats.max) - stats.log_sum;
}

}  // namespace tandem
