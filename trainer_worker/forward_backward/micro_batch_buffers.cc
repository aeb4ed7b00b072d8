#include "trainer_worker/forward_backward/micro_batch_buffers.h"

namespace tandem {
int64_t OwnBlocks(const PackedBatch::Sequence& sequence) {
  if (sequence.rows == 0) return 0;
  const int64_t positions = sequence.prefix_rows + sequence.rows;
  return KvBlocksFor(positions) - sequence.prefix_rows / kKvBlockTokens;
}

BatchShape ShapeOf(const PackedBatch& batch) {
  BatchShape shape{.rows = batch.rows(), .scored = batch.scored()};
  for (const PackedBatch::Sequence& sequence : batch.sequences) {
    shape.kv_blocks += OwnBlocks(sequence);
  }
  return shape;
}

MicroBatchBuffers PlaceMicroBatch(
    const ModelSpec& spec, DType dtype, const BatchShape& shape, Keep keep, std::byte* base) {
  const MicroBatchOffsets at =
      PlaceMicroBatch(spec, static_cast<int64_t>(DTypeBytes(dtype)), shape, keep);
  const auto matrix = [&](int64_t offset, int64_t rows) {
    return PlaceMatrix(base + offset, dtype, rows, spec.hidden_size);
  };
  const auto floats = [&](int64_t offset, int64_t rows) {
    const Matrix place = PlaceMatrix(base + offset, DType::kFloat32, rows, spec.hidden_size);
    return FloatMatrix{static_cast<float*>(place.data), rows, place.cols, place.stride};
  };
  MicroBatchBuffers buffers;
  for (const int64_t offset : at.residuals) buffers.residuals.push_back(matrix(offset, shape.rows));
  for (const int64_t offset : at.layers) {
    buffers.layers.push_back(PlaceLayerActivations(spec, dtype, shape.rows, base + offset));
  }
  buffers.kv = {base + at.kv, shape.kv_blocks};
  buffers.scored_residual = matrix(at.scored_residual, shape.scored);
  buffers.scored_hidden = matrix(at.scored_hidden, shape.scored);
  if (keep == Keep::kNothing) return buffers;
  buffers.scratch = PlaceBackwardScratch(spec, dtype, shape.rows, base + at.scratch);
  buffers.dresidual = floats(at.dresidual, shape.rows);
  buffers.scored_dhidden = matrix(at.scored_dhidden, shape.scored);
  buffers.scored_dresidual = floats(at.scored_dresidual, shape.scored);
  return buffers;
}

}  // namespace tandem
