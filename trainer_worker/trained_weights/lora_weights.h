// The weights of a run that trains adapters: this rank's rows of a frozen base, and the adapters.
// As WeightRows they are the merged weights,
//   W' = W + (alpha / r) B A   (Hu et al., "LoRA", arXiv 2106.09685, section 4.1),
// computed in fp32 when they are read and rounded once to the requested dtype. There is no merged
// copy of the model, and the base is never written, so nothing has to be restored.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/ordered_communicator.h"
#include "common/formats/hf_checkpoint.h"
#include "common/lora/lora_spec.h"
#include "trainer_worker/shard/parameter_shard.h"
#include "trainer_worker/shard/shard_array.h"
#include "trainer_worker/shard/weight_rows.h"
#include "trainer_worker/trained_weights/trained_weights.h"

namespace tandem {

// This rank's rows of a model that is not trained, with the values of its checkpoint.
// Counted under the tag weights; has no masters, gradients or moments. Not thread-safe.
class FrozenBase : public WeightRows {
 public:
  // `plan`, `compute` and `ledger` outlive the object. ResourceExhausted names the bytes.
  static absl::StatusOr<std::unique_ptr<FrozenBase>> Create(const ShardPlan* plan,
                                                            DType dtype,
                                                            const ShardCompute& compute,
                                                            Ledger* ledger);
  // Reads only this rank's rows from disk, a few at a time. Errors as HfCheckpoint, and the
  // device's.
  absl::Status Load(const HfCheckpoint& checkpoint);

  DType dtype() const { return dtype_; }
  // The address on the device of a row of this rank's piece of a tensor, dense, in dtype().
  const std::byte* Row(size_t tensor, int64_t row) const;

  const ShardPlan& plan() const override { return *plan_; }
  Device* device() const override { return compute_.device; }
  absl::Status CopyRows(size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override;

 private:
  FrozenBase(const ShardPlan* plan, DType dtype, const ShardCompute& compute, Ledger* ledger)
      : plan_(plan), dtype_(dtype), compute_(compute), staging_(compute.device, ledger) {}
  absl::Status LoadRows(const HfCheckpoint& checkpoint, size_t tensor, int64_t row, int64_t rows);

  const ShardPlan* const plan_;
  const DType dtype_;
  const ShardCompute compute_;
  std::unique_ptr<ShardArray> array_;
  HostStaging staging_;  // for copies from a file to a device
};

// Lifecycle: Create (base 0, adapters 0) → base().Load, DigestBase, adapters' masters → Gather,
// also after every change of the adapters → all other calls. Not thread-safe. Addresses are the
// device's.
class LoraWeights : public WeightRows {
 public:
  // `plan` (of the model without adapters), `compute` and `ledger` outlive the object. `options`
  // are those of the adapters' shard; A [r, in] and B [out, r] of every target are sharded on dim
  // 0, like W. ResourceExhausted names the region that does not fit.
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

  // Collective; called once the base is loaded. Computes base_digest.
  absl::Status DigestBase(Communicator& communicator);
  // Identifies the base, in hex: a digest of all its tensors in their files' dtype, whatever the
  // compute dtype. Empty before DigestBase.
  const std::string& base_digest() const { return base_digest_; }

  // Collective. Gathers the adapters from all ranks after they have changed.
  absl::Status Gather(Communicator& communicator);
  // Collective. Checks that the adapters gathered last have the masters' values, by the digests
  // that each rank computed when it wrote or stepped its masters. FailedPrecondition: nothing was
  // gathered. Internal names an adapter that was changed and not gathered since, or that did not
  // arrive intact.
  absl::Status CheckGathered(Communicator& communicator) const;

  // Full fp32 adapters of spec().targets[target], row-major, as of the last Gather.
  const float* a(size_t target) const { return Adapter(2 * target); }
  const float* b(size_t target) const { return Adapter(2 * target + 1); }
  // Index of the target whose weight is plan().tensors()[tensor]; -1: the tensor has no adapter.
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
  std::vector<int> target_of_;         // one per tensor of plan_->tensors()
  const WeightLayout adapter_layout_;  // A and B of each target alternate
  const ShardPlan adapter_plan_;
  std::unique_ptr<ParameterShard> adapters_;
  std::unique_ptr<FrozenBase> base_;
  std::unique_ptr<MemoryRegion> gathered_;  // all adapters, tag weights; null with a single rank
  std::vector<Digest> gathered_digests_;    // of the adapters at the last Gather; empty before it
  std::string base_digest_;
};

// The common part of training with merged and with separate adapters: files, and the adapters'
// shard.
class LoraTraining : public TrainedWeights {
 public:
  LoraWeights& lora() { return *lora_; }
  ParameterShard& trained() override { return lora_->adapters(); }
  WeightRows& exported() override { return *lora_; }
  absl::Status FreezeReference() override { return absl::OkStatus(); }
  GradientAccumulator& gradients() override { return *gradients_; }
  absl::StatusOr<std::unique_ptr<ExpectedWeights>> OpenExpected(
      const std::string& directory) override;
  absl::Status Load(const LoadRequest& request, Optimizer& optimizer) override;
  absl::StatusOr<int64_t> Save(SaveOptions options, const Optimizer& optimizer) override;
  void DescribeMemory(TrainerMemoryOptions& options) const override;

 protected:
  LoraTraining(TrainedWeightsOptions options, const RankContext& rank)
      : options_(std::move(options)), rank_(rank) {}
  // `plan` is that of `base`, the model without adapters.
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
