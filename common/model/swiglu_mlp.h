// The gated MLP of Llama and Qwen: down(silu(gate(x)) * up(x)).
#pragma once

#include "common/model/mixer.h"

namespace tandem {

class SwigluMlp final : public ChannelOp {
 public:
  explicit SwigluMlp(const ModelSpec& spec);

  void Forward(ForwardOps& ops,
               const LayerWeights& weights,
               LayerActivations& buffers,
               Matrix out) const override;
  void Backward(BackwardOps& backward,
                const LayerWeights& weights,
                const LayerActivations& buffers,
                const BackwardScratch& scratch,
                FloatMatrix dresidual,
                const LayerGradients& gradients) const override;

 private:
  float eps_;
  int64_t intermediate_;
};

}  // namespace tandem
