// This rank's part of the model: fp32 masters, their rounding to the compute dtype, gradients and
// Adam moments, each one region of memory in the order of the ShardPlan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

#include "common/device/memory_region.h"
#include "trainer_worker/shard_plan.h"

namespace tandem {

// Lifecycle: Create (all masters 0) → fill master() → RoundMaster → train. Not thread-safe.
class ParameterShard {
 public:
  // `plan` and `ledger` must outlive the shard. ResourceExhausted names the region that does not
  // fit.
  static absl::StatusOr<std::unique_ptr<ParameterShard>> Create(const ShardPlan* plan,
                                                                Ledger* ledger);

  const ShardPlan& plan() const { return *plan_; }
  int64_t elements() const { return plan_->elements(plan_->rank()); }

  float* master() { return reinterpret_cast<float*>(master_->data()); }
  const float* master() const { return reinterpret_cast<const float*>(master_->data()); }
  // The rounded masters, in the compute dtype; what gathers, sync and export read. With fp32
  // compute it is the master itself.
  const std::byte* compute() const;
  // compute() as bf16, for an update of the masters to keep; null with fp32 compute.
  Bf16* rounded();
  // Rounds the masters once, after they were written by other means.
  void RoundMaster();

  // Takes the memory if it is not held and sets all gradients to zero.
  absl::Status ZeroGradients();
  absl::Status ReleaseGradients() { return gradients_->Release(); }
  float* gradients() { return reinterpret_cast<float*>(gradients_->data()); }
  const float* gradients() const { return reinterpret_cast<const float*>(gradients_->data()); }

  // Adam's moments, made (as zeros) by the first call.
  absl::Status MapMoments();
  bool has_moments() const { return exp_avg_ != nullptr; }
  float* exp_avg() { return reinterpret_cast<float*>(exp_avg_->data()); }
  float* exp_avg_sq() { return reinterpret_cast<float*>(exp_avg_sq_->data()); }

 private:
  ParameterShard(const ShardPlan* plan, Ledger* ledger) : plan_(plan), ledger_(ledger) {}
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(const char* tag, int64_t element_bytes);

  const ShardPlan* plan_;
  Ledger* ledger_;
  std::unique_ptr<MemoryRegion> master_, compute_, gradients_, exp_avg_, exp_avg_sq_;
};

}  // namespace tandem
