#include "common/model/attention_mixer.h"

#include <cstring>

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
  if (qk_norm_) NormHeads(ops, weights, buffers.qkv);
  Store(ops, batch, kv, buffers.qkv);
  ops.Attention(buffers.qkv, shape_, batch.spans, kv, buffers.attn);
  ops.Linear(buffers.attn, weights.o, buffers.mid);
  ops.Add(buffers.mid, in);
}

void AttentionMixer::Store(ForwardOps& ops, const TokenBatch& batch, KvLayer kv, Matrix qkv) const {
  if (batch.continued.empty()) {
    ops.RopeAndStore(qkv, shape_, *batch.rope, batch.spans, kv);
    return;
  }
  ops.RopeAndStore(qkv, shape_, *batch.rope, batch.first, kv);
  const int64_t bytes = KvBlockBytes(shape_, ops.compute_dtype());
  for (const TokenBatch::BlockCopy& copy : batch.copies) {
    std::memcpy(kv.base + copy.to * bytes, kv.base + copy.from * bytes, static_cast<size_t>(bytes));
  }
  ops.RopeAndStore(qkv, shape_, *batch.rope, batch.continued, kv);
}

void AttentionMixer::NormHeads(ForwardOps& ops, const LayerWeights& weights, Matrix qkv) const {
  const DType dtype = ops.compute_dtype();
  for (int64_t head = 0; head < shape_.heads + shape_.kv_heads; ++head) {
    const Matrix part = Columns(qkv, dtype, head * shape_.head_dim, shape_.head_dim);
    ops.RmsNorm(part, head < shape_.heads ? weights.q_norm : weights.k_norm, eps_, part);
  }
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
  const Matrix dattn = Columns(scratch.dinner, dtype, 0, shape_.q_cols());
  backward.LinearInput(scratch.dhidden, weights.o, dattn);

  const Matrix dqkv = Columns(scratch.dwide, dtype, 0, shape_.qkv_cols());
  backward.Attention(buffers.qkv, shape_, batch.spans, buffers.attn, dattn, dqkv);
  backward.Rope(dqkv, shape_, *batch.rope, batch.spans);
  if (qk_norm_) NormHeadsBackward(ops, backward, weights, buffers, scratch, dqkv, gradients);
  backward.LinearWeights(dqkv, buffers.norm1, gradients.qkv, gradients.qkv_bias);
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
  // The forward norms q and k in place; their inputs are the first rows of the same projection,
  // cheaper to compute again than to keep.
  const DType dtype = ops.compute_dtype();
  LinearWeight qk = weights.qkv;
  qk.rows = (shape_.heads + shape_.kv_heads) * shape_.head_dim;
  ops.Linear(buffers.norm1, qk, scratch.qk);
  for (int64_t head = 0; head < shape_.heads + shape_.kv_heads; ++head) {
    const bool is_query = head < shape_.heads;
    const Matrix raw = Columns(scratch.qk, dtype, head * shape_.head_dim, shape_.head_dim);
    const Matrix grad = Columns(dqkv, dtype, head * shape_.head_dim, shape_.head_dim);
    backward.HeadRmsNorm(raw, is_query ? weights.q_norm : weights.k_norm, eps_, grad, grad,
                         is_query ? gradients.q_norm : gradients.k_norm);
  }
}

}  // namespace tandem
