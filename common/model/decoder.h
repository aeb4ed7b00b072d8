// The model's computation: one forward pass for the rollout's decode and prefill and for the
// trainer. The trainer calls RunLayer and RunLayerBackward itself, because it gathers weights layer
// by layer; the rollout, which holds all weights, calls Forward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

#include "common/model/layer.h"

namespace tandem {

// Not thread-safe (the ops are not). Holds no weights and no activations.
class Decoder {
 public:
  // `max_positions` bounds the rope table. `ops` must outlive the decoder.
  static absl::StatusOr<Decoder> Create(const ModelSpec& spec,
                                        ForwardOps* ops,
                                        int64_t max_positions);

  const ModelSpec& spec() const { return spec_; }
  const WeightLayout& layout() const { return layout_; }
  const RopeTable& rope() const { return rope_; }
  DType dtype() const { return ops_->compute_dtype(); }

  // out = layer(in). `in`, `out` [rows, hidden]; may not alias. kv is that layer's cache.
  void RunLayer(const LayerWeights& weights,
                const TokenBatch& batch,
                KvLayer kv,
                Matrix in,
                LayerActivations& buffers,
                Matrix out) const;
  // dresidual: d(out) on entry, d(in) on return; gradients of weights are accumulated. `buffers`
  // must be as RunLayer left them (if they were not kept, run RunLayer again).
  void RunLayerBackward(BackwardOps& backward,
                        const LayerWeights& weights,
                        const TokenBatch& batch,
                        Matrix in,
                        const LayerActivations& buffers,
                        const BackwardScratch& scratch,
                        FloatMatrix dresidual,
                        const LayerGradients& gradients) const;

  // All layers over a full storage (layout().total_bytes()). `ids` [rows]. `kv` has one KvLayer per
  // layer. `residual` are two [rows, hidden] buffers; returns the one that holds the result,
  // before the final norm.
  Matrix Forward(const std::byte* storage,
                 const int32_t* ids,
                 const TokenBatch& batch,
                 const std::vector<KvLayer>& kv,
                 LayerActivations& buffers,
                 Matrix residual_a,
                 Matrix residual_b) const;

  // out[i] = final norm of residual row rows[i], the input of the head.
  void FinalNorm(const void* weight,
                 Matrix residual,
                 std::span<const int32_t> rows,
                 Matrix out) const;

 private:
  Decoder(const ModelSpec& spec, ForwardOps* ops, DecoderLayer layer, int64_t max_positions);

  ModelSpec spec_;
  ForwardOps* ops_;
  DecoderLayer layer_;
  WeightLayout layout_;
  RopeTable rope_;
};

}  // namespace tandem
