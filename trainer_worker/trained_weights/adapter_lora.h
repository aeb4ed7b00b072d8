// Gradients of adapters that are not merged: the backward ops give them directly
// (BackwardOps::AdapterWeights), and no gradient of a weight is made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/model_spec/model_spec.h"
#include "trainer_worker/layers/gradient_accumulator.h"
#include "trainer_worker/trained_weights/adapter_gradients.h"
#include "trainer_worker/trained_weights/merged_lora.h"
#include "trainer_worker/weight_sync/weight_sources.h"

namespace tandem {

// On each rank a matrix's gradient is one chain over the rows of all micro-batches, in their order,
// summed over ranks once, at the end. Not thread-safe.
class AdapterLoraGradients : public GradientAccumulator {
 public:
  // `spec` is the model with its adapters. All pointers outlive the object, only `communicator` may
  // end before it.
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

// A policy under LoRA whose adapters are not merged: the base as it is, and A and B rounded to the
// compute dtype as tensors of their own, which the ops compute beside the base's (docs/lora.md).

// Lifecycle: Create → AdaptersChanged after every LoraWeights::Gather → all else. Not thread-safe.
class UnmergedPolicy : public DigestedPolicy {
 public:
  // `plan` is of a layout with adapters, `weights` of the same one without; all outlive it.
  // ResourceExhausted names the bytes.
  static absl::StatusOr<std::unique_ptr<UnmergedPolicy>> Create(const ShardPlan* plan,
                                                                LoraWeights* weights,
                                                                const ShardCompute& compute,
                                                                Ledger* ledger);

  // Digests what this rank has of the adapters, and of the base at the first call.
  absl::Status AdaptersChanged();
  // The reference policy: the same memory, and adapters that are zero.
  WeightRows& reference() { return reference_; }

  const ShardPlan& plan() const override { return *plan_; }
  Device* device() const override { return weights_->device(); }
  absl::Status CopyRows(size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override;
  absl::StatusOr<std::vector<Digest>> Digests(Communicator& communicator) const override;

 private:
  UnmergedPolicy(const ShardPlan* plan, LoraWeights* weights, ShardOps* ops);

  class Reference : public WeightRows {
   public:
    explicit Reference(UnmergedPolicy* policy) : policy_(policy) {}
    const ShardPlan& plan() const override { return policy_->plan(); }
    Device* device() const override { return policy_->device(); }
    absl::Status CopyRows(
        size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override;

   private:
    UnmergedPolicy* const policy_;
  };
  // What a tensor of the plan is.
  struct Part {
    size_t base = 0;  // of the base's plan, unless it is an adapter's
    int target = -1;  // of the spec
    LoraMatrix matrix = LoraMatrix::kA;
  };
  static std::vector<Part> PartsOf(const ShardPlan& plan, const LoraWeights& weights);

  const ShardPlan* const plan_;
  LoraWeights* const weights_;
  ShardOps* const ops_;
  const std::vector<Part> parts_;  // of each of plan_->tensors()
  Reference reference_{this};
  std::unique_ptr<MemoryRegion> scratch_;  // fp32 rows of a range, while they are digested
  MasterDigests digests_;
  bool digested_ = false;
};

}  // namespace tandem
