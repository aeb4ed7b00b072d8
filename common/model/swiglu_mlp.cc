#include "common/model/swiglu_mlp.h"

namespace tandem {

SwigluMlp::SwigluMlp(const ModelSpec& spec)
    : eps_(spec.rms_norm_eps), intermediate_(spec.intermediate_size) {}

void SwigluMlp::Forward(ForwardOps& ops,
                        const LayerWeights& weights,
                        LayerActivations& buffers,
                        Matrix out) const {
  ops.Linear(buffers.norm2, weights.gate_up, buffers.gate_up);
  ops.SiluMul(buffers.gate_up, buffers.act);
  ops.Linear(buffers.act, weights.down, out);
  ops.Add(out, buffers.mid);
}

void SwigluMlp::Backward(BackwardOps& backward,
                         const LayerWeights& weights,
                         const LayerActivations& buffers,
                         const BackwardScratch& scratch,
                         FloatMatrix dresidual,
                         const LayerGradients& gradients) const {
  Matrix dact = scratch.dinner, dgate_up = scratch.dwide;
  dact.cols = intermediate_;
  dgate_up.cols = 2 * intermediate_;
  backward.Round(dresidual, scratch.dhidden);
  backward.LinearWeights(scratch.dhidden, buffers.act, gradients.down, nullptr);
  backward.AdapterWeights(scratch.dhidden, buffers.act, weights.down, gradients.down_adapter);
  backward.LinearInput(scratch.dhidden, weights.down, dact);
  backward.SiluMul(buffers.gate_up, dact, dgate_up);
  backward.LinearWeights(dgate_up, buffers.norm2, gradients.gate_up, nullptr);
  backward.AdapterWeights(dgate_up, buffers.norm2, weights.gate_up, gradients.gate_up_adapter);
  backward.LinearInput(dgate_up, weights.gate_up, scratch.dnorm);
  backward.RmsNorm(buffers.mid, weights.post_norm, eps_, scratch.dnorm, dresidual,
                   gradients.post_norm);
}

}  // namespace tandem
