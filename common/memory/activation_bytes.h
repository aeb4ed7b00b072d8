// Where the buffers of a pass are in their memory, and their total size. The workers place buffers
// by these functions and the memory plan adds up their sizes, so that the two cannot differ. Bytes,
// unless a name says otherwise; `element_bytes` is that of the compute dtype.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/model_spec/model_spec.h"
#include "common/types/batch_limits.h"

namespace tandem {

// Bytes of a row: rows start at 64-byte lines.
int64_t RowBytes(int64_t cols, int64_t element_bytes);

// Columns of the arrays that a layer's forward writes and its backward reads, in the order of
// LayerActivations (common/model/activations.h).
std::array<int64_t, 7> LayerActivationCols(const ModelSpec& spec);
// Columns of a layer's backward scratch, in the order of BackwardScratch; the last is 0 for models
// without norms of q and k.
std::array<int64_t, 5> BackwardScratchCols(const ModelSpec& spec);
int64_t LayerActivationBytes(const ModelSpec& spec, int64_t element_bytes, int64_t rows);
int64_t BackwardScratchBytes(const ModelSpec& spec, int64_t element_bytes, int64_t rows);

// What a forward pass keeps for the backward pass.
enum class Keep {
  kNothing,      // no backward pass follows
  kLayerInputs,  // backward runs each layer's forward again
  kEverything,
};

struct BatchShape {
  int64_t rows = 0;
  int64_t scored = 0;     // rows that go through the head
  int64_t kv_blocks = 0;  // blocks of all sequences; each sequence begins a new block
};

// Offsets of a micro-batch's buffers (trainer_worker/forward_backward/layer_loop.h) from the start
// of its memory.
struct MicroBatchOffsets {
  std::vector<int64_t> residuals;
  std::vector<int64_t> layers;
  int64_t kv = 0, scored_residual = 0, scored_hidden = 0;
  int64_t scratch = 0, dresidual = 0, scored_dhidden = 0, scored_dresidual = 0;
  int64_t end = 0;
};
MicroBatchOffsets PlaceMicroBatch(const ModelSpec& spec,
                                  int64_t element_bytes,
                                  const BatchShape& shape,
                                  Keep keep);

// The largest rows, scores and blocks of any micro-batch within the limits.
BatchShape LargestMicroBatch(const BatchLimits& limits);

// Offsets of a rollout's activations: first the normed rows that are sampled (at most kDrawRows),
// then two residuals and one layer's activations.
inline constexpr int64_t kDrawRows = 256;
struct RolloutOffsets {
  int64_t residual_a = 0, residual_b = 0, activations = 0, end = 0;
};
RolloutOffsets PlaceRolloutBatch(const ModelSpec& spec, int64_t element_bytes, int64_t rows);

}  // namespace tandem
