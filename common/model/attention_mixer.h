// Grouped-query attention with rotary positions over paged KV; optional q/k RMSNorm (Qwen3) and
// qkv bias (Qwen2).
#pragma once

#include "common/model/mixer.h"

namespace tandem {

class AttentionMixer final : public Mixer {
 public:
  explicit AttentionMixer(const ModelSpec& spec);

  void Forward(ForwardOps& ops,
               const LayerWeights& weights,
               const TokenBatch& batch,
               KvLayer kv,
               Matrix in,
               LayerActivations& buffers) const override;
  void Backward(ForwardOps& ops,
                BackwardOps& backward,
                const LayerWeights& weights,
                const TokenBatch& batch,
                Matrix in,
                const LayerActivations& buffers,
                const BackwardScratch& scratch,
                FloatMatrix dresidual,
                const LayerGradients& gradients) const override;

 private:
  // RopeAndStore of all spans, those that continue a prefix after they got its last block.
  void Store(ForwardOps& ops, const TokenBatch& batch, KvLayer kv, Matrix qkv) const;
  // dqkv: gradient after the norms on entry, before them on return.
  void NormHeadsBackward(ForwardOps& ops,
                         BackwardOps& backward,
                         const LayerWeights& weights,
                         const LayerActivations& buffers,
                         const BackwardScratch& scratch,
                         Matrix dqkv,
                         const LayerGradients& gradients) const;

  AttentionShape shape_;
  float eps_;
  bool qk_norm_;
};

}  // namespace tandem
