// Σ π(v)² over the vocabulary, which the optimal token baseline needs (verl: sum_pi_squared),
// without an op of its own: at half the temperature every x = logit / T is exactly twice as large,
// so that that row's statistics hold Σ exp(2x).
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

// `at_half` is of the same row at T / 2 (RowStats of ForwardOps::TokenLogProbs). In (0, 1].
inline float SumPiSquared(const RowStats& at, const RowStats& at_half) {
  const double sum = at.sum;
  return static_cast<float>(static_cast<double>(at_half.sum) / (sum * sum));
}

// Half of each temperature; 0 is read as 1, as by the op.
inline std::vector<float> HalfTemperatures(const std::vector<float>& temperatures) {
  std::vector<float> halves;
  halves.reserve(temperatures.size());
  for (const float t : temperatures) halves.push_back(t == 0.0f ? 0.5f : 0.5f * t);
  return halves;
}

// Where a micro-batch's activations, gradients of activations and keys and values lie: one block of
// memory, placed anew for each micro-batch.

BatchShape ShapeOf(const PackedBatch& batch);
// Blocks of a sequence's own: all of them, but for the full ones of a shared prompt.
int64_t OwnBlocks(const PackedBatch::Sequence& sequence);

struct MicroBatchBuffers {
  std::vector<Matrix> residuals;         // input of each layer, then the last output; 2 if kNothing
  std::vector<LayerActivations> layers;  // one per layer with kEverything, else one
  KvLayer kv;                            // one layer's, used by each in turn
  Matrix scored_residual, scored_hidden;  // [scored, hidden]: before and after the final norm
  // Only for backward:
  BackwardScratch scratch;
  FloatMatrix dresidual;         // [rows, hidden]
  Matrix scored_dhidden;         // [scored, hidden]
  FloatMatrix scored_dresidual;  // [scored, hidden]
};

// Places the buffers in memory of PlaceMicroBatch(...).end bytes (activation_bytes.h) at `base`.
MicroBatchBuffers PlaceMicroBatch(
    const ModelSpec& spec, DType dtype, const BatchShape& shape, Keep keep, std::byte* base);

// The forward and backward pass of one micro-batch, layer by layer: gather a layer's weights, run
// it while the next layer's are gathered, let them go; in backward gather again, run the layer's
// forward again where its activations were not kept, and sum its gradients over the ranks, on a GPU
// while the layer before it computes.

// Log-probs (at the sample's temperature) and entropies of the scored rows of a micro-batch.
struct TokenScores {
  std::vector<float> log_probs;
  std::vector<float> entropy;         // empty unless asked for
  std::vector<float> sum_pi_squared;  // over the vocabulary; empty unless asked for
};

struct LayerLoopOptions {
  int64_t vocab_limit = 0;  // ids at or above are masked
  bool entropy = false;
};

// Lifecycle: Begin → (Forward [→ Backward])*, again and again. Forward and Backward are collective:
// a rank without samples passes an empty batch. Not thread-safe.
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

  // Holds memory for a micro-batch of shape `largest`; what an earlier Begin took is used again if
  // it suffices. ResourceExhausted names the bytes.
  absl::Status Begin(const BatchShape& largest, Keep keep);
  // Gives the memory back.
  void Release() { memory_.reset(); }

  // `sum_pi_squared` costs the LM head a second time; no Backward may follow. Unless null,
  // `dropout` is that of the batch's rows in front of all adapters, also in the Backward that
  // follows, which it outlives.
  absl::StatusOr<TokenScores> Forward(const PackedBatch& batch,
                                      LayerSource& weights,
                                      bool sum_pi_squared = false,
                                      const AdapterDropout* dropout = nullptr);
  // Of the batch that Forward has just run: adds d(loss) given d(loss)/d(log-prob) and, unless
  // empty, d(loss)/d(entropy) of every scored row.
  absl::Status Backward(const PackedBatch& batch,
                        LayerSource& weights,
                        GradientAccumulator& gradients,
                        const std::vector<float>& grad_log_probs,
                        const std::vector<float>& grad_entropy);

 private:
  TokenBatch MakeTokens(const PackedBatch& batch);
  // A layer's weights as this pass computes with them.
  LayerWeights View(const std::byte* group, int layer) const;
  LayerActivations& Activations(int64_t layer);
  Matrix& Residual(int64_t index);
  TokenScores ScoreRows(const PackedBatch& batch, const GlobalWeights& globals);
  // Of the rows that ScoreRows has just scored.
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
  std::vector<std::vector<int32_t>> block_tables_;  // of the sequences
  TokenBatch tokens_;
  const AdapterDropout* dropout_ = nullptr;  // of the batch that Forward has just run
  std::vector<RowStats> row_stats_;          // of the scored rows that Forward has just run
};

}  // namespace tandem
