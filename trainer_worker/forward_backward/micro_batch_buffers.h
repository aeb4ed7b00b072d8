// Where a micro-batch's activations, gradients of activations and keys and values lie: one block of
// memory, placed anew for each micro-batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/memory/activation_bytes.h"
#include "common/model/activations.h"
#include "common/model_spec/model_spec.h"
#include "common/ops/ops_types.h"
#include "trainer_worker/forward_backward/packing.h"

namespace tandem {

BatchShape ShapeOf(const PackedBatch& batch);
// Blocks of a sequence's own: all of them, but for the full ones of a shared prompt.
int64_t OwnBlocks(const PackedBatch::Sequence& sequence);

struct MicroBatchBuffers {
  std::vector<Matrix> residuals;         // input of each layer, then the last output; 2 if kNothing
  std::vector<LayerActivations> layers;  // one per layer with kEverything, else one
  KvLayer kv;                            // one layer's, used by each in turn
  Matrix scored_residual, scored_hidden;  // [scored, hidden]: before and after the final norm
  // Only for backward:
  BackwardScratch scratch;
  FloatMatrix dresidual;         // [rows, hidden]
  Matrix scored_dhidden;         // [scored, hidden]
  FloatMatrix scored_dresidual;  // [scored, hidden]
};

// Places the buffers in memory of PlaceMicroBatch(...).end bytes (activation_bytes.h) at `base`.
MicroBatchBuffers PlaceMicroBatch(
    const ModelSpec& spec, DType dtype, const BatchShape& shape, Keep keep, std::byte* base);

}  // namespace tandem
