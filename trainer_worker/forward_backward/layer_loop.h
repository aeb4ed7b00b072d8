// Runs the forward and backward pass of micro-batches, layer by layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/device.h"
#include "common/memory/activation_bytes.h"
#include "common/model/activations.h"
#include "common/model/decoder.h"
#include "common/model_spec/model_spec.h"
#include "common/ops/adapter_dropout.h"
#include "common/ops/ops_types.h"
#include "trainer_worker/forward_backward/packing.h"
#include "trainer_worker/layers/gradient_accumulator.h"
#include "trainer_worker/layers/layer_source.h"

namespace tandem {

// Σ π(v)² over the vocabulary, which the optimal token baseline needs (verl: sum_pi_squared),
// without an op of its own: at half the temperature every x = logit / T is exactly twice as large,
// so the row statistics at T / 2 hold Σ exp(2x). `at_half` are the statistics of the same row at
// T / 2 (RowStats of ForwardOps::TokenLogProbs). The result is in (0, 1].
inline float SumPiSquared(const RowStats& at, const RowStats& at_half) {
  const double sum = at.sum;
  return static_cast<float>(static_cast<double>(at_half.sum) / (sum * sum));
}

// Half of each temperature; a temperature of 0 counts as 1, as in the op.
inline std::vector<float> HalfTemperatures(const std::vector<float>& temperatures) {
  std::vector<float> halves;
  halves.reserve(temperatures.size());
  for (const float t : temperatures) halves.push_back(t == 0.0f ? 0.5f : 0.5f * t);
  return halves;
}

BatchShape ShapeOf(const PackedBatch& batch);
// Number of KV blocks that belong to the sequence alone: all of its blocks, except the full blocks
// of a shared prompt.
int64_t OwnBlocks(const PackedBatch::Sequence& sequence);

// The memory of a micro-batch: activations, gradients of activations, and keys and values, in one
// block that is laid out again for each micro-batch.
struct MicroBatchBuffers {
  // Each layer's input, then the last layer's output; 2 entries with Keep::kNothing.
  std::vector<Matrix> residuals;
  std::vector<LayerActivations> layers;   // one per layer with Keep::kEverything, else one
  KvLayer kv;                             // of one layer; used by each layer in turn
  Matrix scored_residual, scored_hidden;  // [scored, hidden]: before and after the final norm
  // Only for the backward pass:
  BackwardScratch scratch;
  FloatMatrix dresidual;         // [rows, hidden]
  Matrix scored_dhidden;         // [scored, hidden]
  FloatMatrix scored_dresidual;  // [scored, hidden]
};

// Places the buffers at `base`, in memory of PlaceMicroBatch(...).end bytes (activation_bytes.h).
MicroBatchBuffers PlaceMicroBatch(
    const ModelSpec& spec, DType dtype, const BatchShape& shape, Keep keep, std::byte* base);

// Log-probs (at the sample's temperature) and entropies of the scored rows of a micro-batch.
struct TokenScores {
  std::vector<float> log_probs;
  std::vector<float> entropy;         // empty unless requested
  std::vector<float> sum_pi_squared;  // over the vocabulary; empty unless requested
};

struct LayerLoopOptions {
  int64_t vocab_limit = 0;  // ids at or above it are masked
  bool entropy = false;
};

// The forward and backward pass of one micro-batch, layer by layer. Forward gathers a layer's
// weights, runs the layer while the next one's weights are gathered, and then releases them.
// Backward gathers the weights again, recomputes the layer's forward pass if its activations were
// not kept, and sums its gradients over the ranks; on a GPU the sum overlaps with the backward pass
// of the layer before it. Lifecycle: Begin → (Forward [→ Backward])*, repeated. Forward and
// Backward are collective: a rank without samples passes an empty batch. Not thread-safe.
class LayerLoop {
 public:
  // All pointers must outlive the loop.
  LayerLoop(Device* device,
            const Decoder* decoder,
            ForwardOps* forward,
            BackwardOps* backward,
            Ledger* ledger,
            LayerLoopOptions options)
      : device_(device),
        decoder_(decoder),
        forward_(forward),
        backward_(backward),
        ledger_(ledger),
        options_(options) {}

  const ModelSpec& spec() const { return decoder_->spec(); }
  int64_t element_bytes() const { return static_cast<int64_t>(DTypeBytes(decoder_->dtype())); }

  // Allocates memory for a micro-batch of shape `largest`; memory from an earlier Begin is reused
  // if it suffices. ResourceExhausted names the bytes.
  absl::Status Begin(const BatchShape& largest, Keep keep);
  // Releases the memory.
  void Release() { memory_.reset(); }

  // `sum_pi_squared` computes the LM head a second time; no Backward may follow. If not null,
  // `dropout` is applied to the batch's rows before all adapters, also in the Backward that
  // follows, which it must outlive.
  absl::StatusOr<TokenScores> Forward(const PackedBatch& batch,
                                      LayerSource& weights,
                                      bool sum_pi_squared = false,
                                      const AdapterDropout* dropout = nullptr);
  // For the batch that Forward has just run: adds the gradients of the loss, given
  // d(loss)/d(log-prob) and, unless empty, d(loss)/d(entropy) of every scored row.
  absl::Status Backward(const PackedBatch& batch,
                        LayerSource& weights,
                        GradientAccumulator& gradients,
                        const std::vector<float>& grad_log_probs,
                        const std::vector<float>& grad_entropy);

 private:
  TokenBatch MakeTokens(const PackedBatch& batch);
  // A layer's weights for this pass, with its adapter dropout.
  LayerWeights View(const std::byte* group, int layer) const;
  LayerActivations& Activations(int64_t layer);
  Matrix& Residual(int64_t index);
  TokenScores ScoreRows(const PackedBatch& batch, const GlobalWeights& globals);
  // Sums of squared probabilities of the rows that ScoreRows has just scored.
  std::vector<float> SumsOfSquares(const PackedBatch& batch, const GlobalWeights& globals);
  void HeadBackward(const PackedBatch& batch,
                    const GlobalWeights& globals,
                    const GlobalGradients& gradients,
                    const std::vector<float>& grad_log_probs,
                    const std::vector<float>& grad_entropy);
  void Zero(const FloatMatrix& matrix);
  void Zero(const Matrix& matrix);

  Device* device_;
  const Decoder* decoder_;
  ForwardOps* forward_;
  BackwardOps* backward_;
  Ledger* ledger_;
  LayerLoopOptions options_;
  Keep keep_ = Keep::kNothing;
  std::unique_ptr<MemoryRegion> memory_;
  MicroBatchBuffers buffers_;
  std::vector<std::vector<int32_t>> block_tables_;  // one per sequence of the batch
  TokenBatch tokens_;
  const AdapterDropout* dropout_ = nullptr;  // of the last Forward
  std::vector<RowStats> row_stats_;          // of the scored rows of the last Forward
};

}  // namespace tandem
