// Adapters that stay separate from the base. The backward ops compute their gradients directly
// (BackwardOps::AdapterWeights), without gradients of the base's weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/model_spec/model_spec.h"
#include "trainer_worker/layers/gradient_accumulator.h"
#include "trainer_worker/shard/master_digests.h"
#include "trainer_worker/trained_weights/adapter_gradients.h"
#include "trainer_worker/trained_weights/lora_weights.h"

namespace tandem {

// On each rank a matrix's gradient is one chain of additions over the rows of all micro-batches, in
// their order; at the end it is summed over ranks once. Not thread-safe.
class AdapterLoraGradients : public GradientAccumulator {
 public:
  // `spec` is the model with its adapters. All pointers outlive the object, except that
  // `communicator` may be destroyed before it.
  static absl::StatusOr<std::unique_ptr<AdapterLoraGradients>> Create(
      const ModelSpec& spec,
      LoraWeights* weights,
      OrderedCommunicator* communicator,
      Ledger* ledger);

  absl::Status Begin() override { return sums_->Begin(); }
  absl::StatusOr<float*> Group(int /*layer*/) override { return nullptr; }
  void SelectTargets(int layer, LayerGradients* view) const override;
  absl::Status Reduce(int /*layer*/) override { return absl::OkStatus(); }
  absl::Status Finish() override { return sums_->Finish(); }
  absl::Status Release() override { return sums_->Release(); }

 private:
  AdapterLoraGradients(const ModelSpec& spec, LoraWeights* weights);

  const std::vector<AdaptedProduct> products_;
  LoraWeights* const weights_;
  std::unique_ptr<AdapterGradientSums> sums_;
};

// Training of adapters that stay separate: the policy consists of the unchanged base and of A and
// B, rounded to the compute dtype, as additional tensors, whose products the ops add to the base's
// (docs/guides/lora.md). A rollout that holds the base is sent adapters alone.
class AdapterLora final : public LoraTraining, public WeightRows {
 public:
  static absl::StatusOr<std::unique_ptr<TrainedWeights>> Create(
      const TrainedWeightsOptions& options, const ModelSpec& base, const RankContext& rank);

  WeightRows& policy() override { return *this; }
  // Reads the same memory, with zeros as adapters.
  absl::StatusOr<WeightRows*> reference() override { return &reference_; }
  absl::Status OnWeightsChanged() override;
  std::unique_ptr<WeightSource> MakeWeightSource() override;
  UpdateScope smallest_update() const override { return UpdateScope::kAdapters; }

 private:
  class Reference : public WeightRows {
   public:
    explicit Reference(AdapterLora* weights) : weights_(weights) {}
    const ShardPlan& plan() const override { return weights_->plan(); }
    Device* device() const override { return weights_->device(); }
    absl::Status CopyRows(
        size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override;

   private:
    AdapterLora* const weights_;
  };
  // A tensor of the plan: a base tensor or an adapter's matrix.
  struct Part {
    size_t base = 0;  // index in the base's plan; unused for adapters
    int target = -1;  // index of the LoRA spec's target; -1: a base tensor
    LoraMatrix matrix = LoraMatrix::kA;
  };

  AdapterLora(const TrainedWeightsOptions& options, const ModelSpec& base, const RankContext& rank);
  std::vector<Part> FindParts() const;

  const ShardPlan& plan() const override { return *rank_.plan; }
  Device* device() const override { return rank_.compute.device; }
  absl::Status CopyRows(size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override;

  const WeightLayout base_layout_;
  const ShardPlan base_plan_;
  std::vector<Part> parts_;  // one per tensor of plan().tensors()
  Reference reference_{this};
  std::unique_ptr<RowDigests> digests_;
};

}  // namespace tandem
