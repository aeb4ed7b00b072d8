#include "common/model/decoder.h"

#include <utility>

#include "common/base/progress.h"
#include "common/model_spec/rope.h"

namespace tandem {

Decoder::Decoder(const ModelSpec& spec, ForwardOps* ops, DecoderLayer layer, int64_t max_positions)
    : spec_(spec),
      ops_(ops),
      layer_(std::move(layer)),
      layout_(WeightLayout::Build(spec, ops->compute_dtype(), ops->weight_format())),
      rope_(MakeRopeTable(RopeInverseFrequencies(spec), max_positions)) {}

absl::StatusOr<Decoder> Decoder::Create(const ModelSpec& spec,
                                        ForwardOps* ops,
                                        int64_t max_positions) {
  absl::StatusOr<DecoderLayer> layer = MakeDecoderLayer(spec);
  if (!layer.ok()) return layer.status();
  return Decoder(spec, ops, *std::move(layer), max_positions);
}

void Decoder::RunLayer(const LayerWeights& weights,
                       const TokenBatch& batch,
                       KvLayer kv,
                       Matrix in,
                       LayerActivations& buffers,
                       Matrix out) const {
  NoteActivity("attention");
  layer_.mixer->Forward(*ops_, weights, batch, kv, in, buffers);
  NoteActivity("feed-forward");
  ops_->AddRmsNorm(buffers.mid, in, weights.post_norm, spec_.rms_norm_eps, buffers.norm2);
  layer_.channel_op->Forward(*ops_, weights, buffers, out);
}

void Decoder::RunLayerBackward(BackwardOps& backward,
                               const LayerWeights& weights,
                               const TokenBatch& batch,
                               Matrix in,
                               const LayerActivations& buffers,
                               const BackwardScratch& scratch,
                               FloatMatrix dresidual,
                               const LayerGradients& gradients) const {
  NoteActivity("backward of feed-forward");
  layer_.channel_op->Backward(backward, weights, buffers, scratch, dresidual, gradients);
  NoteActivity("backward of attention");
  layer_.mixer->Backward(*ops_, backward, weights, batch, in, buffers, scratch, dresidual,
                         gradients);
}

Matrix Decoder::Forward(const std::byte* storage,
                        const int32_t* ids,
                        const TokenBatch& batch,
                        const std::vector<KvLayer>& kv,
                        LayerActivations& buffers,
                        Matrix residual_a,
                        Matrix residual_b) const {
  ops_->Embed(ids, ViewGlobals(spec_, layout_, storage).embedding, residual_a);
  for (int layer = 0; layer < spec_.num_layers; ++layer) {
    const LayerWeights weights =
        ViewLayer(spec_, layout_, storage + layout_.group_offset(layer), layer);
    const WorkStep step("forward pass", {"layer", layer});
    RunLayer(weights, batch, kv[static_cast<size_t>(layer)], residual_a, buffers, residual_b);
    std::swap(residual_a, residual_b);
  }
  return residual_a;
}

void Decoder::FinalNorm(const void* weight,
                        Matrix residual,
                        std::span<const int32_t> rows,
                        Matrix out) const {
  out.rows = static_cast<int64_t>(rows.size());
  ops_->TakeRows(residual, rows.data(), out);
  ops_->RmsNorm(out, weight, spec_.rms_norm_eps, out);
}

}  // namespace tandem
