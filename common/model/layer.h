// The two halves of a decoder layer as seams: a mixer moves information between tokens, a channel
// op works on each token alone. The registry below chooses them by model type.
#pragma once

#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/model/activations.h"
#include "common/model/weights_view.h"
#include "common/ops/backward_ops.h"
#include "common/ops/forward_ops.h"

namespace tandem {

// Which rows are computed and where their keys and values live.
struct TokenBatch {
  std::vector<AttentionSpan> spans;  // cover all rows, ascending, no overlap
  const RopeTable* rope = nullptr;   // at least as long as the largest position
  // Spans that continue a prefix computed in the same batch: they share its full blocks and begin
  // with a copy of its last one. `first` are the spans whose keys and values are stored before the
  // copies, `continued` the others. Where that is empty, the other two are not read.
  std::vector<AttentionSpan> first, continued;
  std::vector<BlockCopy> copies;
};

// Stateless; safe to share between threads that have their own ops.
class Mixer {
 public:
  virtual ~Mixer() = default;
  // `buffers.mid` = mixer(norm(in)), to which the layer adds `in`; also fills norm1, qkv, attn and
  // the rows' KV.
  virtual void Forward(ForwardOps& ops,
                       const LayerWeights& weights,
                       const TokenBatch& batch,
                       KvLayer kv,
                       Matrix in,
                       LayerActivations& buffers) const = 0;
  // dresidual holds d(mid) on entry and d(in) on return; gradients are added to. Every span begins
  // at position 0 or continues a prefix of the batch. `ops` is used to recompute activations that
  // the forward did not keep.
  virtual void Backward(ForwardOps& ops,
                        BackwardOps& backward,
                        const LayerWeights& weights,
                        const TokenBatch& batch,
                        Matrix in,
                        const LayerActivations& buffers,
                        const BackwardScratch& scratch,
                        FloatMatrix dresidual,
                        const LayerGradients& gradients) const = 0;
};

// Stateless; safe to share between threads that have their own ops.
class ChannelOp {
 public:
  virtual ~ChannelOp() = default;
  // out = mid + channel_op(norm2), where the layer has left mid with the residual, and norm2 =
  // norm(mid); also fills gate_up and act.
  virtual void Forward(ForwardOps& ops,
                       const LayerWeights& weights,
                       LayerActivations& buffers,
                       Matrix out) const = 0;
  // dresidual holds d(out) on entry and d(mid) on return; gradients are added to.
  virtual void Backward(BackwardOps& backward,
                        const LayerWeights& weights,
                        const LayerActivations& buffers,
                        const BackwardScratch& scratch,
                        FloatMatrix dresidual,
                        const LayerGradients& gradients) const = 0;
};

// Grouped-query attention with rotary positions over paged KV; optional q/k RMSNorm (Qwen3) and
// qkv bias (Qwen2).
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

// The gated MLP of Llama and Qwen: down(silu(gate(x)) * up(x)).
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

// Which mixer and channel op a model type is made of. A new architecture adds a row here.
struct DecoderLayer {
  std::unique_ptr<Mixer> mixer;
  std::unique_ptr<ChannelOp> channel_op;
};

// Unimplemented names the model type and lists the known ones.
absl::StatusOr<DecoderLayer> MakeDecoderLayer(const ModelSpec& spec);

}  // namespace tandem
