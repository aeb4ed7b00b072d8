// A policy under LoRA whose adapters are not merged: the base as it is, and A and B rounded to the
// compute dtype as tensors of their own, which the ops compute beside the base's (docs/lora.md).
#pragma once

#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_worker/trained_weights/merged_lora.h"
#include "trainer_worker/weight_sync/lora_tensor_source.h"

namespace tandem {

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
  PolicyRows& reference() { return reference_; }

  const ShardPlan& plan() const override { return *plan_; }
  Device* device() const override { return weights_->device(); }
  absl::Status CopyRows(size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override;
  absl::StatusOr<std::vector<Digest>> Digests(Communicator& communicator) const override;

 private:
  UnmergedPolicy(const ShardPlan* plan, LoraWeights* weights, ShardOps* ops);

  class Reference : public PolicyRows {
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
