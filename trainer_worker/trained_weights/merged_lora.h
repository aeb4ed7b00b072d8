// A policy under LoRA: this rank's rows of the base, which never change, and adapters, which are
// what is trained. Every product with a weight is one with the merged weight,
//   W' = W + (alpha / r) B A   (Hu et al., "LoRA", arXiv 2106.09685, section 4.1),
// in fp32, rounded once to the compute dtype. It is made row by row where it is read: into the
// buffer of a gather or of a sync, and for the digests. There is no merged copy of the model, the
// base is never written, and so nothing is restored.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/ordered_communicator.h"
#include "common/lora/lora_spec.h"
#include "trainer_worker/shard/parameter_shard.h"
#include "trainer_worker/trained_weights/frozen_base.h"
#include "trainer_worker/weight_sync/weight_sources.h"

namespace tandem {

// Who computes with the merged weights: all, or exports alone, where adapters are computed beside
// the base (unmerged_policy.h) and merged weights need no digests.
enum class LoraUse { kMerged, kBeside };

// Lifecycle: Create (base 0, adapters 0) → base().Load, DigestBase, adapters' masters → Gather,
// again after every change of the adapters → all else. Not thread-safe. Addresses are the device's.
class LoraWeights : public DigestedPolicy {
 public:
  // `plan`, `device`, `ops` and `ledger` outlive the object. `options` are the adapters' own; A
  // [r, in] and B [out, r] of every target are cut on dim 0, B like W. ResourceExhausted names the
  // region that does not fit.
  static absl::StatusOr<std::unique_ptr<LoraWeights>> Create(const ShardPlan* plan,
                                                             LoraSpec spec,
                                                             DType base_dtype,
                                                             const ShardOptions& options,
                                                             const ShardCompute& compute,
                                                             Ledger* ledger,
                                                             LoraUse use = LoraUse::kMerged);

  const LoraSpec& spec() const { return spec_; }
  ParameterShard& adapters() { return *adapters_; }
  const ParameterShard& adapters() const { return *adapters_; }
  // The reference policy: the same memory without the adapters.
  FrozenBase& base() { return *base_; }

  // Collective, once the base is loaded: what tells it from every other (base_digest).
  absl::Status DigestBase(Communicator& communicator);
  // Of all tensors of the base in its files' dtype, whatever is computed in; hex; empty before
  // DigestBase.
  const std::string& base_digest() const { return base_digest_; }

  // Collective. The adapters have new values: takes them from all ranks and, where merged weights
  // are computed with, digests what they make of the base, apart from all that is gathered and
  // sent.
  absl::Status Gather(Communicator& communicator);
  // Collective. What was gathered last are the masters' values, by the digests that each rank took
  // of its masters as it wrote or stepped them. FailedPrecondition: nothing was gathered. Internal
  // names an adapter that was changed and not gathered since, or did not come as it is.
  absl::Status CheckGathered(Communicator& communicator) const;
  // Collective: of the merged tensors in the layout's dtype and order, as the last Gather left
  // them. Errors as CheckGathered.
  absl::StatusOr<std::vector<Digest>> Digests(Communicator& communicator) const override;

  // Full fp32 adapters of spec().targets[target], row-major, as the last Gather left them.
  const float* a(size_t target) const { return Adapter(2 * target); }
  const float* b(size_t target) const { return Adapter(2 * target + 1); }
  // Index of the target that is plan().tensors()[tensor]; -1: it has no adapter.
  int TargetOf(size_t tensor) const { return target_of_[tensor]; }

  // Of the merged weights.
  const ShardPlan& plan() const override { return *plan_; }
  Device* device() const override { return device_; }
  absl::Status CopyRows(size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override;

 private:
  LoraWeights(const ShardPlan* plan, LoraSpec spec, const ShardCompute& compute, LoraUse use);
  const float* Adapter(size_t tensor) const;
  absl::Status DigestGathered();

  const ShardPlan* const plan_;
  const LoraSpec spec_;
  Device* const device_;
  ShardOps* const ops_;
  const LoraUse use_;
  std::vector<int> target_of_;         // of each of plan_->tensors()
  const WeightLayout adapter_layout_;  // A and B of each target in turn
  const ShardPlan adapter_plan_;
  std::unique_ptr<ParameterShard> adapters_;
  std::unique_ptr<FrozenBase> base_;
  std::unique_ptr<MemoryRegion> gathered_;  // all adapters, tag weights; null with a single rank
  std::unique_ptr<MemoryRegion> scratch_;   // fp32 rows of a range, while they are digested
  MasterDigests digests_;
  std::vector<Digest> gathered_digests_;  // of the adapters at the last Gather, as they then were
  std::string base_digest_;
  bool gathered_once_ = false;
};

}  // namespace tandem
