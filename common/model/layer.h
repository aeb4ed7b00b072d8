// The two halves of a decoder layer as interfaces: a mixer moves information between tokens, a
// channel op works on each token alone. MakeDecoderLayer chooses them by model type.
#pragma once

#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/model/activations.h"
#include "common/model/weights_view.h"
#include "common/ops/backward_ops.h"
#include "common/ops/forward_ops.h"

namespace tandem {

// Which rows are computed, and where their keys and values are stored.
struct TokenBatch {
  std::vector<AttentionSpan> spans;  // cover all rows, ascending, no overlap
  const RopeTable* rope = nullptr;   // at least as long as the largest position
  // Spans that continue a prefix from the same batch share the full blocks of the prefix and begin
  // with a copy of its last block. `first` are the spans whose keys and values are stored before
  // the copies, `continued` the others. If `continued` is empty, `first` and the copies are not
  // read.
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
  // dresidual holds d(mid) on entry and d(in) on return; gradients of weights are accumulated.
  // Every span begins at position 0 or continues a prefix of the batch. `ops` recomputes
  // activations that the forward pass did not keep.
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
  // out = mid + channel_op(norm2), where norm2 = norm(mid) and the layer has already left mid with
  // the residual; also fills gate_up and act.
  virtual void Forward(ForwardOps& ops,
                       const LayerWeights& weights,
                       LayerActivations& buffers,
                       Matrix out) const = 0;
  // dresidual holds d(out) on entry and d(mid) on return; gradients of weights are accumulated.
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
  // Runs RopeAndStore for all spans; spans that continue a prefix are stored after its last block
  // was copied.
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

// The mixer and channel op of a model type. A new architecture adds a row here.
struct DecoderLayer {
  std::unique_ptr<Mixer> mixer;
  std::unique_ptr<ChannelOp> channel_op;
};

// Unimplemented names the model type and lists the known ones.
absl::StatusOr<DecoderLayer> MakeDecoderLayer(const ModelSpec& spec);

}  // namespace tandem
