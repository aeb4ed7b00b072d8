#include "common/model_spec/memory_formulas.h"

#include <algorithm>

#include "common/types/tensor_view.h"

namespace tandem {

int64_t KvBytesPerToken(const ModelSpec& spec, int64_t element_bytes) {
  return 2 * spec.kv_rows() * element_bytes * spec.num_layers;
}

int64_t KvBlockLayerBytes(const ModelSpec& spec, int64_t element_bytes) {
  return 2 * spec.kv_rows() * element_bytes * kKvBlockTokens;
}

int64_t KvBlockBytes(const ModelSpec& spec, int64_t element_bytes) {
  return KvBlockLayerBytes(spec, element_bytes) * spec.num_layers;
}

int64_t KvBlocksFor(int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

int64_t LayerParameters(const ModelSpec& spec) {
  int64_t parameters = 0;
  for (const TensorSpec& tensor : HfTensors(spec)) {
    if (tensor.layer == 0) parameters += NumElements(tensor.shape);
  }
  return parameters;
}

int64_t GlobalParameters(const ModelSpec& spec) {
  return spec.parameters() - spec.num_layers * LayerParameters(spec);
}

int64_t EmbeddingParameters(const ModelSpec& spec) { return spec.vocab_size * spec.hidden_size; }

RowRange ShardRows(int64_t rows, int64_t rank, int64_t world) {
  const int64_t chunk = (rows + world - 1) / world;
  return {std::min(rank * chunk, rows), std::min((rank + 1) * chunk, rows)};
}

int64_t ShardParameters(const ModelSpec& spec, int64_t rank, int64_t world) {
  int64_t parameters = 0;
  for (const TensorSpec& tensor : HfTensors(spec)) {
    const int64_t row_elements = NumElements(tensor.shape) / tensor.shape[0];
    parameters += ShardRows(tensor.shape[0], rank, world).rows() * row_elements;
  }
  return parameters;
}

int64_t WeightBytes(const ModelSpec& spec, int64_t element_bytes) {
  return element_bytes * spec.parameters();
}

int64_t MasterBytes(const ModelSpec& spec, int64_t rank, int64_t world) {
  return 4 * ShardParameters(spec, rank, world);
}

int64_t ComputeShardBytes(const ModelSpec& spec,
                          int64_t rank,
                          int64_t world,
                          int64_t element_bytes) {
  return element_bytes * ShardParameters(spec, rank, world);
}

int64_t GradientShardBytes(const ModelSpec& spec, int64_t rank, int64_t world) {
  return 4 * ShardParameters(spec, rank, world);
}

int64_t OptimizerBytes(const ModelSpec& spec, int64_t rank, int64_t world) {
  return 8 * ShardParameters(spec, rank, world);
}

int64_t TrainerKeptBytes(int64_t device_bytes, double rollout_utilization) {
  return static_cast<int64_t>(std::max(0.0, 0.9 - rollout_utilization) *
                              static_cast<double>(device_bytes));
}

int64_t KeptGatherBytes(int64_t kept_bytes) { return kept_bytes / 8; }

int64_t ActivationBytesPerToken(const ModelSpec& spec, bool recompute) {
  const int64_t layer_input = 2 * spec.hidden_size;
  if (recompute) return spec.num_layers * layer_input;
  const int64_t attention = 2 * (spec.qkv_rows() + spec.q_rows()) + 4 * spec.num_heads;
  const int64_t norms_and_residual = 3 * 2 * spec.hidden_size;
  const int64_t channel = 3 * 2 * spec.intermediate_size;
  return spec.num_layers * (layer_input + attention + norms_and_residual + channel);
}

int64_t LogitBytesPerToken(const ModelSpec& spec) { return 4 * spec.vocab_size; }

int64_t CheckpointBytes(const ModelSpec& spec) { return 14 * spec.parameters(); }

}  // namespace tandem
