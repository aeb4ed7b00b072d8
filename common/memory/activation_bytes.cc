#include "common/memory/activation_bytes.h"

#include <algorithm>

#include "common/base/numeric.h"
#include "common/memory/memory_formulas.h"

namespace tandem {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kPageBytes = 4096;

// Allocates ranges that start at page boundaries.
class PageCursor {
 public:
  int64_t Take(int64_t bytes) {
    const int64_t at = used_;
    used_ += RoundUp(bytes, kPageBytes);
    return at;
  }
  int64_t used() const { return used_; }

 private:
  int64_t used_ = 0;
};

template <size_t kCount>
int64_t RowsBytes(const std::array<int64_t, kCount>& cols, int64_t element_bytes, int64_t rows) {
  int64_t bytes = 0;
  for (const int64_t count : cols) bytes += rows * RowBytes(count, element_bytes);
  return bytes;
}

}  // namespace

int64_t RowBytes(int64_t cols, int64_t element_bytes) {
  return RoundUp(cols * element_bytes, kLineBytes);
}

std::array<int64_t, 7> LayerActivationCols(const ModelSpec& spec) {
  return {spec.hidden_size,      spec.qkv_rows(),  spec.q_rows(),
          spec.hidden_size,      spec.hidden_size, 2 * spec.intermediate_size,
          spec.intermediate_size};
}

std::array<int64_t, 5> BackwardScratchCols(const ModelSpec& spec) {
  return {spec.hidden_size, spec.hidden_size, std::max(2 * spec.intermediate_size, spec.qkv_rows()),
          std::max(spec.intermediate_size, spec.q_rows()),
          spec.qk_norm ? spec.q_rows() + spec.kv_rows() : 0};
}

int64_t LayerActivationBytes(const ModelSpec& spec, int64_t element_bytes, int64_t rows) {
  return RowsBytes(LayerActivationCols(spec), element_bytes, rows);
}

int64_t BackwardScratchBytes(const ModelSpec& spec, int64_t element_bytes, int64_t rows) {
  return RowsBytes(BackwardScratchCols(spec), element_bytes, rows);
}

MicroBatchOffsets PlaceMicroBatch(const ModelSpec& spec,
                                  int64_t element_bytes,
                                  const BatchShape& shape,
                                  Keep keep) {
  constexpr int64_t kFloat = 4;
  const int64_t hidden = spec.hidden_size;
  MicroBatchOffsets at;
  PageCursor cursor;
  const int64_t residuals = keep == Keep::kNothing ? 2 : spec.num_layers + 1;
  for (int64_t i = 0; i < residuals; ++i) {
    at.residuals.push_back(cursor.Take(shape.rows * RowBytes(hidden, element_bytes)));
  }
  const int64_t layers = keep == Keep::kEverything ? spec.num_layers : 1;
  for (int64_t i = 0; i < layers; ++i) {
    at.layers.push_back(cursor.Take(LayerActivationBytes(spec, element_bytes, shape.rows)));
  }
  at.kv = cursor.Take(shape.kv_blocks * KvBlockLayerBytes(spec, element_bytes));
  at.scored_residual = cursor.Take(shape.scored * RowBytes(hidden, element_bytes));
  at.scored_hidden = cursor.Take(shape.scored * RowBytes(hidden, element_bytes));
  if (keep != Keep::kNothing) {
    at.scratch = cursor.Take(BackwardScratchBytes(spec, element_bytes, shape.rows));
    at.dresidual = cursor.Take(shape.rows * RowBytes(hidden, kFloat));
    at.scored_dhidden = cursor.Take(shape.scored * RowBytes(hidden, element_bytes));
    at.scored_dresidual = cursor.Take(shape.scored * RowBytes(hidden, kFloat));
  }
  at.end = cursor.used();
  return at;
}

BatchShape LargestMicroBatch(const BatchLimits& limits) {
  const int64_t tokens =
      std::min(limits.sequence_tokens, limits.prompt_tokens + limits.response_tokens);
  const int64_t prompt = std::min(tokens, limits.prompt_tokens);
  BatchShape shape;
  // The last token of a response needs no row, as it predicts nothing.
  shape.rows =
      std::min(limits.micro_batch_tokens,
               limits.groups * prompt + limits.samples * std::max<int64_t>(0, tokens - prompt - 1));
  shape.scored = std::min(limits.micro_batch_tokens,
                          limits.samples * std::min(limits.response_tokens, tokens));
  // A sequence of r own rows behind a prompt has at most ceil(r / 64) + 1 blocks.
  const int64_t sequences = std::min(limits.samples, limits.micro_batch_tokens);
  shape.kv_blocks = (shape.rows + (kKvBlockTokens - 1) * sequences) / kKvBlockTokens + sequences;
  return shape;
}

RolloutOffsets PlaceRolloutBatch(const ModelSpec& spec, int64_t element_bytes, int64_t rows) {
  const int64_t row = RowBytes(spec.hidden_size, element_bytes);
  RolloutOffsets at;
  at.residual_a = kDrawRows * row;
  at.residual_b = at.residual_a + rows * row;
  at.activations = at.residual_b + rows * row;
  at.end = at.activations + LayerActivationBytes(spec, element_bytes, rows);
  return at;
}

}  // namespace tandem
