#include "trainer_worker/micro_batch_buffers.h"

namespace tandem {
namespace {

constexpr int64_t kAlignment = 4096;

// Hands out ranges; with a null base it only counts.
class Cursor {
 public:
  explicit Cursor(std::byte* base) : base_(base) {}
  std::byte* Take(int64_t bytes) {
    std::byte* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  Matrix TakeMatrix(DType dtype, int64_t rows, int64_t cols) {
    return PlaceMatrix(Take(MatrixBytes(dtype, rows, cols)), dtype, rows, cols);
  }
  FloatMatrix TakeFloats(int64_t rows, int64_t cols) {
    const Matrix matrix = TakeMatrix(DType::kFloat32, rows, cols);
    return FloatMatrix{static_cast<float*>(matrix.data), rows, cols, matrix.stride};
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

void PlaceForward(const ModelSpec& spec,
                  DType dtype,
                  const BatchShape& shape,
                  Keep keep,
                  Cursor& cursor,
                  MicroBatchBuffers& buffers) {
  const int64_t hidden = spec.hidden_size;
  const int64_t residuals = keep == Keep::kNothing ? 2 : spec.num_layers + 1;
  for (int64_t i = 0; i < residuals; ++i) {
    buffers.residuals.push_back(cursor.TakeMatrix(dtype, shape.rows, hidden));
  }
  const int64_t layers = keep == Keep::kEverything ? spec.num_layers : 1;
  const int64_t layer_bytes = LayerActivationBytes(spec, dtype, shape.rows);
  for (int64_t i = 0; i < layers; ++i) {
    buffers.layers.push_back(
        PlaceLayerActivations(spec, dtype, shape.rows, cursor.Take(layer_bytes)));
  }
  const AttentionShape attention{spec.num_heads, spec.num_kv_heads, spec.head_dim};
  buffers.kv.num_blocks = shape.kv_blocks;
  buffers.kv.base = cursor.Take(shape.kv_blocks * KvBlockBytes(attention, dtype));
  buffers.scored_residual = cursor.TakeMatrix(dtype, shape.scored, hidden);
  buffers.scored_hidden = cursor.TakeMatrix(dtype, shape.scored, hidden);
}

void PlaceBackward(const ModelSpec& spec,
                   DType dtype,
                   const BatchShape& shape,
                   Cursor& cursor,
                   MicroBatchBuffers& buffers) {
  buffers.scratch = PlaceBackwardScratch(
      spec, dtype, shape.rows, cursor.Take(BackwardScratchBytes(spec, dtype, shape.rows)));
  buffers.dresidual = cursor.TakeFloats(shape.rows, spec.hidden_size);
  buffers.scored_dhidden = cursor.TakeMatrix(dtype, shape.scored, spec.hidden_size);
  buffers.scored_dresidual = cursor.TakeFloats(shape.scored, spec.hidden_size);
}

}  // namespace

int64_t OwnBlocks(const PackedBatch::Sequence& sequence) {
  if (sequence.rows == 0) return 0;
  const int64_t positions = sequence.prefix_rows + sequence.rows;
  return (positions + kKvBlockTokens - 1) / kKvBlockTokens - sequence.prefix_rows / kKvBlockTokens;
}

BatchShape ShapeOf(const PackedBatch& batch) {
  BatchShape shape{.rows = batch.rows(), .scored = batch.scored()};
  for (const PackedBatch::Sequence& sequence : batch.sequences) {
    shape.kv_blocks += OwnBlocks(sequence);
  }
  return shape;
}

int64_t PlaceMicroBatch(const ModelSpec& spec,
                        DType dtype,
                        const BatchShape& shape,
                        Keep keep,
                        std::byte* base,
                        MicroBatchBuffers* buffers) {
  MicroBatchBuffers unused;
  MicroBatchBuffers& target = buffers == nullptr ? unused : *buffers;
  target = MicroBatchBuffers{};
  Cursor cursor(base);
  PlaceForward(spec, dtype, shape, keep, cursor, target);
  if (keep != Keep::kNothing) PlaceBackward(spec, dtype, shape, cursor, target);
  return cursor.used();
}

}  // namespace tandem
