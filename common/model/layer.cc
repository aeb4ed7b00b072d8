#include "common/model/layer.h"

#include "common/base/status.h"
#include "common/model_spec/model_family.h"

namespace tandem {

AttentionMixer::AttentionMixer(const ModelSpec& spec)
    : shape_(AttentionShapeOf(spec)), eps_(spec.rms_norm_eps), qk_norm_(spec.qk_norm) {}

void AttentionMixer::Forward(ForwardOps& ops,
                             const LayerWeights& weights,
                             const TokenBatch& batch,
                             KvLayer kv,
                             Matrix in,
                             LayerActivations& buffers) const {
  ops.RmsNorm(in, weights.input_norm, eps_, buffers.norm1);
  ops.Linear(buffers.norm1, weights.qkv, buffers.qkv);
  if (qk_norm_) ops.HeadRmsNorms(buffers.qkv, shape_, weights.q_norm, weights.k_norm, eps_);
  Store(ops, batch, kv, buffers.qkv);
  ops.Attention(buffers.qkv, shape_, batch.spans, kv, buffers.attn);
  ops.Linear(buffers.attn, weights.o, buffers.mid);
}

void AttentionMixer::Store(ForwardOps& ops, const TokenBatch& batch, KvLayer kv, Matrix qkv) const {
  if (batch.continued.empty()) {
    ops.RopeAndStore(qkv, shape_, *batch.rope, batch.spans, kv);
    return;
  }
  ops.RopeAndStore(qkv, shape_, *batch.rope, batch.first, kv);
  ops.CopyBlocks(shape_, batch.copies, kv);
  ops.RopeAndStore(qkv, shape_, *batch.rope, batch.continued, kv);
}

void AttentionMixer::Backward(ForwardOps& ops,
                              BackwardOps& backward,
                              const LayerWeights& weights,
                              const TokenBatch& batch,
                              Matrix in,
                              const LayerActivations& buffers,
                              const BackwardScratch& scratch,
                              FloatMatrix dresidual,
                              const LayerGradients& gradients) const {
  const DType dtype = ops.compute_dtype();
  backward.Round(dresidual, scratch.dhidden);
  backward.LinearWeights(scratch.dhidden, buffers.attn, gradients.o, nullptr);
  backward.AdapterWeights(scratch.dhidden, buffers.attn, weights.o, gradients.o_adapter);
  const Matrix dattn = Columns(scratch.dinner, dtype, 0, shape_.q_cols());
  backward.LinearInput(scratch.dhidden, weights.o, dattn);

  const Matrix dqkv = Columns(scratch.dwide, dtype, 0, shape_.qkv_cols());
  backward.Attention(buffers.qkv, shape_, batch.spans, buffers.attn, dattn, dqkv);
  backward.Rope(dqkv, shape_, *batch.rope, batch.spans);
  if (qk_norm_) NormHeadsBackward(ops, backward, weights, buffers, scratch, dqkv, gradients);
  backward.LinearWeights(dqkv, buffers.norm1, gradients.qkv, gradients.qkv_bias);
  backward.AdapterWeights(dqkv, buffers.norm1, weights.qkv, gradients.qkv_adapter);
  backward.LinearInput(dqkv, weights.qkv, scratch.dnorm);
  backward.RmsNorm(in, weights.input_norm, eps_, scratch.dnorm, dresidual, gradients.input_norm);
}

void AttentionMixer::NormHeadsBackward(ForwardOps& ops,
                                       BackwardOps& backward,
                                       const LayerWeights& weights,
                                       const LayerActivations& buffers,
                                       const BackwardScratch& scratch,
                                       Matrix dqkv,
                                       const LayerGradients& gradients) const {
  // The forward pass norms q and k in place. Their inputs are the first rows of the same
  // projection, which are cheaper to recompute than to keep.
  LinearWeight qk = weights.qkv;
  qk.rows = (shape_.heads + shape_.kv_heads) * shape_.head_dim;
  ops.Linear(buffers.norm1, qk, scratch.qk);
  backward.HeadRmsNorms(scratch.qk, shape_,
                        {weights.q_norm, weights.k_norm, eps_, gradients.q_norm, gradients.k_norm},
                        dqkv, dqkv);
}

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

namespace {

DecoderLayer AttentionAndSwiglu(const ModelSpec& spec) {
  return DecoderLayer{std::make_unique<AttentionMixer>(spec), std::make_unique<SwigluMlp>(spec)};
}

}  // namespace

absl::StatusOr<DecoderLayer> MakeDecoderLayer(const ModelSpec& spec) {
  const ModelFamily* family = FindModelFamily(spec.model_type);
  if (family == nullptr) {
    return MakeStatus(absl::StatusCode::kUnimplemented,
                      "model type {} cannot be executed; use a {} model", spec.model_type,
                      ModelFamilyNames());
  }
  switch (family->layer) {
    case DecoderLayerKind::kAttentionSwiglu:
      return AttentionAndSwiglu(spec);
  }
  return absl::InternalError("the model family names no decoder layer");
}

}  // namespace tandem
