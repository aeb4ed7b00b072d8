// The weights of a run that trains adapters: this rank's rows of a frozen base, and the adapters.
// As rows they are those of the merged weights,
//   W' = W + (alpha / r) B A   (Hu et al., "LoRA", arXiv 2106.09685, section 4.1),
// in fp32, rounded once to the dtype that is asked for, and computed where they are read: there is
// no merged copy of the model, the base is never written, and so nothing is restored.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/ordered_communicator.h"
#include "common/lora/lora_spec.h"
#include "trainer_worker/shard/parameter_shard.h"
#include "trainer_worker/trained_weights/frozen_base.h"
#include "trainer_worker/trained_weights/trained_weights.h"

namespace tandem {

// Lifecycle: Create (base 0, adapters 0) → base().Load, DigestBase, adapters' masters → Gather,
// again after every change of the adapters → all else. Not thread-safe. Addresses are the device's.
class LoraWeights : public WeightRows {
 public:
  // `plan`, of the model without adapters, `device`, `ops` and `ledger` outlive the object.
  // `options` are those of the adapters' shard; A [r, in] and B [out, r] of every target are cut on
  // dim 0, as W is. ResourceExhausted names the region that does not fit.
  static absl::StatusOr<std::unique_ptr<LoraWeights>> Create(const ShardPlan* plan,
                                                             LoraSpec spec,
                                                             DType base_dtype,
                                                             const ShardOptions& options,
                                                             const ShardCompute& compute,
                                                             Ledger* ledger);

  const LoraSpec& spec() const { return spec_; }
  ParameterShard& adapters() { return *adapters_; }
  const ParameterShard& adapters() const { return *adapters_; }
  FrozenBase& base() { return *base_; }
  const FrozenBase& base() const { return *base_; }

  // Collective, once the base is loaded: computes base_digest.
  absl::Status DigestBase(Communicator& communicator);
  // Identifies the base: of all its tensors in their files' dtype, whatever the compute dtype; hex;
  // empty before DigestBase.
  const std::string& base_digest() const { return base_digest_; }

  // Collective. The adapters have new values: gathers them from all ranks.
  absl::Status Gather(Communicator& communicator);
  // Collective. Checks that what was gathered last are the masters' values, by the digests that
  // each rank took of its masters as it wrote or stepped them. FailedPrecondition: nothing was
  // gathered. Internal names an adapter that was changed and not gathered since, or did not arrive
  // intact.
  absl::Status CheckGathered(Communicator& communicator) const;

  // Full fp32 adapters of spec().targets[target], row-major, as the last Gather left them.
  const float* a(size_t target) const { return Adapter(2 * target); }
  const float* b(size_t target) const { return Adapter(2 * target + 1); }
  // Index of the target that is plan().tensors()[tensor]; -1: it has no adapter.
  int TargetOf(size_t tensor) const { return target_of_[tensor]; }

  const ShardPlan& plan() const override { return *plan_; }
  Device* device() const override { return device_; }
  absl::Status CopyRows(size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override;

 private:
  LoraWeights(const ShardPlan* plan, LoraSpec spec, const ShardCompute& compute, Ledger* ledger);
  const float* Adapter(size_t tensor) const;
  absl::Status DigestGathered();

  const ShardPlan* const plan_;
  const LoraSpec spec_;
  Device* const device_;
  ShardOps* const ops_;
  Ledger* const ledger_;
  std::vector<int> target_of_;         // of each of plan_->tensors()
  const WeightLayout adapter_layout_;  // A and B of each target in turn
  const ShardPlan adapter_plan_;
  std::unique_ptr<ParameterShard> adapters_;
  std::unique_ptr<FrozenBase> base_;
  std::unique_ptr<MemoryRegion> gathered_;  // all adapters, tag weights; null with a single rank
  std::vector<Digest> gathered_digests_;    // of the adapters at the last Gather; empty before
  std::string base_digest_;
};

// What training with merged and with separate adapters has in common: the files, and what is
// trained.
class LoraTraining : public TrainedWeights {
 public:
  LoraWeights& lora() { return *lora_; }
  ParameterShard& trained() override { return lora_->adapters(); }
  WeightRows& exported() override { return *lora_; }
  absl::Status FreezeReference() override { return absl::OkStatus(); }
  GradientAccumulator& gradients() override { return *gradients_; }
  absl::StatusOr<std::unique_ptr<ReferenceWeights>> OpenReference(
      const std::string& directory) override;
  absl::Status Load(const LoadRequest& request, Optimizer& optimizer) override;
  absl::StatusOr<int64_t> Save(SaveOptions options, const Optimizer& optimizer) override;
  void DescribeMemory(TrainerMemoryOptions& options) const override;

 protected:
  LoraTraining(TrainedWeightsOptions options, const RankContext& rank)
      : options_(std::move(options)), rank_(rank) {}
  // `plan` is of the model without adapters, `base`.
  absl::Status Allocate(const ModelSpec& base, const ShardPlan* plan);

  const TrainedWeightsOptions options_;
  const RankContext rank_;
  std::unique_ptr<LoraWeights> lora_;
  std::unique_ptr<GradientAccumulator> gradients_;

 private:
  absl::Status LoadBase();
  absl::Status LoadAdapters(const LoadRequest& request, Optimizer& optimizer);
};

}  // namespace tandem
