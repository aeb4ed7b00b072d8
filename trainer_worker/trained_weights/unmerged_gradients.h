// Gradients of adapters that are not merged: the backward ops give them directly
// (BackwardOps::AdapterWeights), and no gradient of a weight is made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/model_spec/model_spec.h"
#include "trainer_worker/layers/gradient_accumulator.h"
#include "trainer_worker/trained_weights/rank_sums.h"

namespace tandem {

// On each rank a matrix's gradient is one chain over the rows of all micro-batches, in their order,
// summed over ranks once, at the end. Not thread-safe.
class UnmergedGradients : public GradientSink {
 public:
  // `spec` is the model with its adapters. All pointers outlive the object, only `communicator` may
  // end before it.
  static absl::StatusOr<std::unique_ptr<UnmergedGradients>> Create(
      const ModelSpec& spec,
      LoraWeights* weights,
      OrderedCommunicator* communicator,
      Ledger* ledger);

  absl::Status Begin() override { return sums_->Begin(); }
  absl::StatusOr<float*> Group(int /*layer*/) override { return nullptr; }
  void Choose(int layer, LayerGradients* view) const override;
  absl::Status Reduce(int /*layer*/) override { return absl::OkStatus(); }
  absl::Status Finish() override { return sums_->Finish(); }
  absl::Status Release() override { return sums_->Release(); }

 private:
  UnmergedGradients(const ModelSpec& spec, LoraWeights* weights);

  const std::vector<AdaptedProduct> products_;
  LoraWeights* const weights_;
  std::unique_ptr<RankSums> sums_;
};

}  // namespace tandem
