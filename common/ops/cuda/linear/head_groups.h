// How the head's logits are computed: in products of always the same ids, because a logit's bits
// may hang on how many ids are computed at once (linear.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/memory/cuda_scratch.h"
#include "common/ops/ops_types.h"

namespace tandem {

struct HeadGroup {
  int64_t first_chunk = 0, chunks = 0;  // below vocab_limit
  int64_t first_id = 0, ids = 0;        // of the head, whatever vocab_limit
};

constexpr HeadGroup HeadGroupAt(int64_t group, int64_t head_rows, int64_t vocab_limit) {
  const int64_t first_id = group * kGroupIds;
  return {.first_chunk = group * kGroupChunks,
          .chunks = std::min(kGroupChunks, CudaVocabChunks(vocab_limit) - group * kGroupChunks),
          .first_id = first_id,
          .ids = std::min(kGroupIds, head_rows - first_id)};
}

// Rows [first, first + rows) of hidden states in bf16.
inline Matrix HiddenRows(Matrix matrix, int64_t first, int64_t rows) {
  matrix.data = static_cast<uint16_t*>(matrix.data) + first * matrix.stride;
  matrix.rows = rows;
  return matrix;
}

}  // namespace tandem
