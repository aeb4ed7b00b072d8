#include "trainer_worker/layer_loop.h"

#include <algorithm>
#include <cstring>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

// Copies the scored rows into a dense matrix.
void TakeRows(const Matrix& from, DType dtype, const std::vector<int32_t>& rows, const Matrix& to) {
  const size_t element = DTypeBytes(dtype);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(static_cast<std::byte*>(to.data) + i * static_cast<size_t>(to.stride) * element,
                static_cast<const std::byte*>(from.data) +
                    static_cast<size_t>(rows[i]) * static_cast<size_t>(from.stride) * element,
                static_cast<size_t>(from.cols) * element);
  }
}

// Adds them, in order: a row may be scored more than once.
void AddRows(const FloatMatrix& from, const std::vector<int32_t>& rows, const FloatMatrix& to) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const float* source = from.data + static_cast<int64_t>(i) * from.stride;
    float* target = to.data + rows[i] * to.stride;
    for (int64_t col = 0; col < from.cols; ++col) target[col] += source[col];
  }
}

void Zero(const FloatMatrix& matrix) {
  std::fill_n(matrix.data, matrix.rows * matrix.stride, 0.0f);
}

void Zero(const Matrix& matrix, DType dtype) {
  std::memset(matrix.data, 0, static_cast<size_t>(matrix.rows * matrix.stride) * DTypeBytes(dtype));
}

}  // namespace

int64_t LayerLoop::Bytes(const std::vector<PackedBatch>& batches, Keep keep) const {
  int64_t bytes = 0;
  for (const PackedBatch& batch : batches) {
    bytes = std::max(bytes, PlaceMicroBatch(decoder_->spec(), decoder_->dtype(), ShapeOf(batch),
                                            keep, nullptr, nullptr));
  }
  return bytes;
}

absl::Status LayerLoop::Begin(const std::vector<PackedBatch>& batches, Keep keep) {
  keep_ = keep;
  const int64_t bytes = Bytes(batches, keep);
  if (bytes == 0 || (memory_ != nullptr && memory_->bytes() >= bytes)) return absl::OkStatus();
  Release();
  TANDEM_ASSIGN_OR_RETURN(memory_, MemoryRegion::Reserve("activations", bytes, ledger_));
  return memory_->Map();
}

TokenBatch LayerLoop::MakeTokens(const PackedBatch& batch) {
  TokenBatch tokens{.rope = &decoder_->rope()};
  block_tables_.resize(batch.sequences.size());
  int32_t next = 0;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const PackedBatch::Sequence& sequence = batch.sequences[i];
    std::vector<int32_t>& table = block_tables_[i];
    table.clear();
    if (sequence.rows == 0) continue;
    AttentionSpan span = {.first_row = sequence.first_row,
                          .rows = sequence.rows,
                          .first_position = sequence.prefix_rows,
                          .sequence = static_cast<uint64_t>(sequence.sample)};
    if (sequence.prefix >= 0) {
      const std::vector<int32_t>& prompt = block_tables_[static_cast<size_t>(sequence.prefix)];
      const int64_t full = sequence.prefix_rows / kKvBlockTokens;
      table.assign(prompt.begin(), prompt.begin() + full);
      if (sequence.prefix_rows % kKvBlockTokens != 0) {
        tokens.copies.push_back({prompt[static_cast<size_t>(full)], next});
      }
      span.prefix_row = batch.sequences[static_cast<size_t>(sequence.prefix)].first_row;
    }
    for (int64_t block = OwnBlocks(sequence); block > 0; --block) table.push_back(next++);
    span.blocks = table.data();
    tokens.spans.push_back(span);
    (sequence.prefix < 0 ? tokens.first : tokens.continued).push_back(span);
  }
  return tokens;
}

LayerActivations& LayerLoop::Activations(int64_t layer) {
  return buffers_.layers[keep_ == Keep::kEverything ? static_cast<size_t>(layer) : 0];
}

Matrix& LayerLoop::Residual(int64_t index) {
  return buffers_.residuals[static_cast<size_t>(keep_ == Keep::kNothing ? index % 2 : index)];
}

absl::StatusOr<TokenScores> LayerLoop::Forward(const PackedBatch& batch, WeightGather& weights) {
  const ModelSpec& spec = decoder_->spec();
  const DType dtype = decoder_->dtype();
  const bool empty = batch.rows() == 0;
  TANDEM_ASSIGN_OR_RETURN(const std::byte* global_group, weights.Group(-1));
  const GlobalWeights globals = ViewGlobals(spec, decoder_->layout(), global_group);
  if (!empty) {
    PlaceMicroBatch(spec, dtype, ShapeOf(batch), keep_, memory_->data(), &buffers_);
    tokens_ = MakeTokens(batch);
    forward_->Embed(batch.tokens.data(), globals.embedding, Residual(0));
  }
  for (int layer = 0; layer < spec.num_layers; ++layer) {
    TANDEM_ASSIGN_OR_RETURN(const std::byte* group, weights.Group(layer));
    if (empty) continue;
    decoder_->RunLayer(ViewLayer(spec, decoder_->layout(), group), tokens_, buffers_.kv,
                       Residual(layer), Activations(layer), Residual(layer + 1));
  }
  return empty ? TokenScores{} : ScoreRows(batch, globals);
}

TokenScores LayerLoop::ScoreRows(const PackedBatch& batch, const GlobalWeights& globals) {
  TokenScores scores;
  if (batch.scored() == 0) return scores;
  scores.log_probs.resize(static_cast<size_t>(batch.scored()));
  row_stats_.resize(scores.log_probs.size());
  TakeRows(Residual(decoder_->spec().num_layers), decoder_->dtype(), batch.scored_rows,
           buffers_.scored_residual);
  forward_->RmsNorm(buffers_.scored_residual, globals.final_norm, decoder_->spec().rms_norm_eps,
                    buffers_.scored_hidden);
  forward_->TokenLogProbs(buffers_.scored_hidden, globals.head, options_.vocab_limit,
                          batch.targets.data(), batch.temperatures.data(), scores.log_probs.data(),
                          row_stats_.data());
  if (options_.entropy) {
    for (const RowStats& stats : row_stats_) scores.entropy.push_back(stats.entropy);
  }
  return scores;
}

void LayerLoop::HeadBackward(const PackedBatch& batch,
                             const GlobalWeights& globals,
                             const GlobalGradients& gradients,
                             const std::vector<float>& grad_log_probs,
                             const std::vector<float>& grad_entropy) {
  Zero(buffers_.dresidual);
  if (batch.scored() == 0) return;
  Zero(buffers_.scored_dhidden, decoder_->dtype());
  Zero(buffers_.scored_dresidual);
  backward_->TokenLogProbs(buffers_.scored_hidden, globals.head, options_.vocab_limit,
                           batch.targets.data(), batch.temperatures.data(), row_stats_.data(),
                           grad_log_probs.data(),
                           grad_entropy.empty() ? nullptr : grad_entropy.data(),
                           buffers_.scored_dhidden, gradients.head);
  backward_->RmsNorm(buffers_.scored_residual, globals.final_norm, decoder_->spec().rms_norm_eps,
                     buffers_.scored_dhidden, buffers_.scored_dresidual, gradients.final_norm);
  AddRows(buffers_.scored_dresidual, batch.scored_rows, buffers_.dresidual);
}

absl::Status LayerLoop::Backward(const PackedBatch& batch,
                                 WeightGather& weights,
                                 GradientScatter& gradients,
                                 const std::vector<float>& grad_log_probs,
                                 const std::vector<float>& grad_entropy) {
  const ModelSpec& spec = decoder_->spec();
  const WeightLayout& layout = decoder_->layout();
  const bool empty = batch.rows() == 0;
  TANDEM_ASSIGN_OR_RETURN(const std::byte* global_group, weights.Group(-1));
  const GlobalGradients global_gradients = ViewGlobalGradients(spec, layout, gradients.Group(-1));
  if (!empty) {
    HeadBackward(batch, ViewGlobals(spec, layout, global_group), global_gradients, grad_log_probs,
                 grad_entropy);
  }
  for (int layer = static_cast<int>(spec.num_layers) - 1; layer >= 0; --layer) {
    TANDEM_ASSIGN_OR_RETURN(const std::byte* group, weights.Group(layer));
    float* layer_gradients = gradients.Group(layer);
    if (!empty) {
      const LayerWeights view = ViewLayer(spec, layout, group);
      LayerActivations& activations = Activations(layer);
      if (keep_ == Keep::kLayerInputs) {
        // Overwrites the next layer's input, which is not needed any more, with the same bits.
        decoder_->RunLayer(view, tokens_, buffers_.kv, Residual(layer), activations,
                           Residual(layer + 1));
      }
      decoder_->RunLayerBackward(*backward_, view, tokens_, Residual(layer), activations,
                                 buffers_.scratch, buffers_.dresidual,
                                 ViewLayerGradients(spec, layout, layer_gradients));
    }
    TANDEM_RETURN_IF_ERROR(gradients.Reduce(layer));
  }
  if (!empty) {
    backward_->Embed(batch.tokens.data(), buffers_.dresidual, global_gradients.embedding);
  }
  return absl::OkStatus();
}

}  // namespace tandem
