#include "trainer_worker/forward_backward/layer_loop.h"

#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/process/fault_injection.h"

namespace tandem {

int64_t OwnBlocks(const PackedBatch::Sequence& sequence) {
  if (sequence.rows == 0) return 0;
  const int64_t positions = sequence.prefix_rows + sequence.rows;
  return KvBlocksFor(positions) - sequence.prefix_rows / kKvBlockTokens;
}

BatchShape ShapeOf(const PackedBatch& batch) {
  BatchShape shape{.rows = batch.rows(), .scored = batch.scored()};
  for (const PackedBatch::Sequence& sequence : batch.sequences) {
    shape.kv_blocks += OwnBlocks(sequence);
  }
  return shape;
}

MicroBatchBuffers PlaceMicroBatch(
    const ModelSpec& spec, DType dtype, const BatchShape& shape, Keep keep, std::byte* base) {
  const MicroBatchOffsets at =
      PlaceMicroBatch(spec, static_cast<int64_t>(DTypeBytes(dtype)), shape, keep);
  const auto matrix = [&](int64_t offset, int64_t rows) {
    return PlaceMatrix(base + offset, dtype, rows, spec.hidden_size);
  };
  const auto floats = [&](int64_t offset, int64_t rows) {
    const Matrix place = PlaceMatrix(base + offset, DType::kFloat32, rows, spec.hidden_size);
    return FloatMatrix{static_cast<float*>(place.data), rows, place.cols, place.stride};
  };
  MicroBatchBuffers buffers;
  for (const int64_t offset : at.residuals) buffers.residuals.push_back(matrix(offset, shape.rows));
  for (const int64_t offset : at.layers) {
    buffers.layers.push_back(PlaceLayerActivations(spec, dtype, shape.rows, base + offset));
  }
  buffers.kv = {base + at.kv, shape.kv_blocks};
  buffers.scored_residual = matrix(at.scored_residual, shape.scored);
  buffers.scored_hidden = matrix(at.scored_hidden, shape.scored);
  if (keep == Keep::kNothing) return buffers;
  buffers.scratch = PlaceBackwardScratch(spec, dtype, shape.rows, base + at.scratch);
  buffers.dresidual = floats(at.dresidual, shape.rows);
  buffers.scored_dhidden = matrix(at.scored_dhidden, shape.scored);
  buffers.scored_dresidual = floats(at.scored_dresidual, shape.scored);
  return buffers;
}

void LayerLoop::Zero(const FloatMatrix& matrix) {
  device_->Zero(matrix.data, matrix.rows * matrix.stride * static_cast<int64_t>(sizeof(float)));
}

void LayerLoop::Zero(const Matrix& matrix) {
  device_->Zero(matrix.data, matrix.rows * matrix.stride * element_bytes());
}

absl::Status LayerLoop::Begin(const BatchShape& largest, Keep keep) {
  keep_ = keep;
  if (largest.rows == 0) return absl::OkStatus();
  const int64_t bytes = PlaceMicroBatch(spec(), element_bytes(), largest, keep).end;
  if (memory_ != nullptr && memory_->bytes() >= bytes) return absl::OkStatus();
  Release();
  TANDEM_ASSIGN_OR_RETURN(memory_, device_->Reserve("activations", bytes, ledger_));
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

LayerWeights LayerLoop::View(const std::byte* group, int layer) const {
  LayerWeights view = ViewLayer(spec(), decoder_->layout(), group, layer);
  for (LinearWeight* weight : {&view.qkv, &view.o, &view.gate_up, &view.down}) {
    weight->adapter.dropout = dropout_;
  }
  return view;
}

absl::StatusOr<TokenScores> LayerLoop::Forward(const PackedBatch& batch,
                                               LayerSource& weights,
                                               bool sum_pi_squared,
                                               const AdapterDropout* dropout) {
  dropout_ = dropout;
  const ModelSpec& spec = decoder_->spec();
  const DType dtype = decoder_->dtype();
  const bool empty = batch.rows() == 0;
  TANDEM_ASSIGN_OR_RETURN(const std::byte* global_group, weights.Layer(-1));
  weights.Prefetch(0);
  const GlobalWeights globals = ViewGlobals(spec, decoder_->layout(), global_group);
  if (!empty) {
    buffers_ = PlaceMicroBatch(spec, dtype, ShapeOf(batch), keep_, memory_->data());
    tokens_ = MakeTokens(batch);
    forward_->Embed(batch.tokens.data(), globals.embedding, Residual(0));
  }
  for (int layer = 0; layer < spec.num_layers; ++layer) {
    TANDEM_ASSIGN_OR_RETURN(const std::byte* group, weights.Layer(layer));
    weights.Prefetch(layer + 1);
    if (empty) continue;
    const WorkStep step("forward pass", {"layer", layer});
    FaultPoint("layer");
    decoder_->RunLayer(View(group, layer), tokens_, buffers_.kv, Residual(layer),
                       Activations(layer), Residual(layer + 1));
  }
  if (empty) return TokenScores{};
  const WorkStep step("log-probs of a forward pass");
  TokenScores scores = ScoreRows(batch, globals);
  if (sum_pi_squared) scores.sum_pi_squared = SumsOfSquares(batch, globals);
  // The ops' errors are reported here.
  TANDEM_RETURN_IF_ERROR(device_->Synchronize());
  return scores;
}

TokenScores LayerLoop::ScoreRows(const PackedBatch& batch, const GlobalWeights& globals) {
  TokenScores scores;
  if (batch.scored() == 0) return scores;
  scores.log_probs.resize(static_cast<size_t>(batch.scored()));
  row_stats_.resize(scores.log_probs.size());
  forward_->TakeRows(Residual(decoder_->spec().num_layers), batch.scored_rows.data(),
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

std::vector<float> LayerLoop::SumsOfSquares(const PackedBatch& batch,
                                            const GlobalWeights& globals) {
  const std::vector<RowStats> stats = row_stats_;
  const std::vector<float> halves = HalfTemperatures(batch.temperatures);
  std::vector<float> sums(stats.size());
  if (sums.empty()) return sums;
  forward_->TokenLogProbs(buffers_.scored_hidden, globals.head, options_.vocab_limit,
                          batch.targets.data(), halves.data(), sums.data(), row_stats_.data());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = SumPiSquared(stats[i], row_stats_[i]);
  return sums;
}

void LayerLoop::HeadBackward(const PackedBatch& batch,
                             const GlobalWeights& globals,
                             const GlobalGradients& gradients,
                             const std::vector<float>& grad_log_probs,
                             const std::vector<float>& grad_entropy) {
  Zero(buffers_.dresidual);
  if (batch.scored() == 0) return;
  Zero(buffers_.scored_dhidden);
  Zero(buffers_.scored_dresidual);
  backward_->TokenLogProbs(buffers_.scored_hidden, globals.head, options_.vocab_limit,
                           batch.targets.data(), batch.temperatures.data(), row_stats_.data(),
                           grad_log_probs.data(),
                           grad_entropy.empty() ? nullptr : grad_entropy.data(),
                           buffers_.scored_dhidden, gradients.head);
  backward_->RmsNorm(buffers_.scored_residual, globals.final_norm, decoder_->spec().rms_norm_eps,
                     buffers_.scored_dhidden, buffers_.scored_dresidual, gradients.final_norm);
  backward_->AddRows(buffers_.scored_dresidual, batch.scored_rows.data(), buffers_.dresidual);
}

absl::Status LayerLoop::Backward(const PackedBatch& batch,
                                 LayerSource& weights,
                                 GradientAccumulator& gradients,
                                 const std::vector<float>& grad_log_probs,
                                 const std::vector<float>& grad_entropy) {
  const ModelSpec& spec = decoder_->spec();
  const WeightLayout& layout = decoder_->layout();
  const bool empty = batch.rows() == 0;
  TANDEM_ASSIGN_OR_RETURN(const std::byte* global_group, weights.Layer(-1));
  TANDEM_ASSIGN_OR_RETURN(float* const global_buffer, gradients.Group(-1));
  const GlobalGradients global_gradients = global_buffer == nullptr
                                               ? GlobalGradients{}
                                               : ViewGlobalGradients(spec, layout, global_buffer);
  if (!empty) {
    const WorkStep step("backward of the head");
    HeadBackward(batch, ViewGlobals(spec, layout, global_group), global_gradients, grad_log_probs,
                 grad_entropy);
  }
  for (int layer = static_cast<int>(spec.num_layers) - 1; layer >= 0; --layer) {
    TANDEM_ASSIGN_OR_RETURN(const std::byte* group, weights.Layer(layer));
    weights.Prefetch(layer - 1);
    TANDEM_ASSIGN_OR_RETURN(float* const layer_gradients, gradients.Group(layer));
    if (!empty) {
      const WorkStep step("backward pass", {"layer", layer});
      const LayerWeights view = View(group, layer);
      LayerActivations& activations = Activations(layer);
      if (keep_ == Keep::kLayerInputs) {
        // Overwrites the next layer's input, which is no longer needed, with the same bits.
        decoder_->RunLayer(view, tokens_, buffers_.kv, Residual(layer), activations,
                           Residual(layer + 1));
      }
      LayerGradients wanted = layer_gradients == nullptr
                                  ? LayerGradients{}
                                  : ViewLayerGradients(spec, layout, layer_gradients);
      gradients.SelectTargets(layer, &wanted);
      decoder_->RunLayerBackward(*backward_, view, tokens_, Residual(layer), activations,
                                 buffers_.scratch, buffers_.dresidual, wanted);
    }
    TANDEM_RETURN_IF_ERROR(gradients.Reduce(layer));
  }
  if (!empty && global_gradients.embedding != nullptr) {
    backward_->Embed(batch.tokens.data(), buffers_.dresidual, global_gradients.embedding);
  }
  return absl::OkStatus();
}

}  // namespace tandem
