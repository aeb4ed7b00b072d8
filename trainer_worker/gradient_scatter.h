// From full gradients of a group to this rank's shard of them.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/device/memory_region.h"
#include "trainer_worker/parameter_shard.h"

namespace tandem {

// A single rank accumulates straight into its shard. Several ranks accumulate a layer's gradients
// in one buffer that is summed over ranks after every micro-batch; the global group's buffer
// gathers the whole mini-batch and is summed once, at its end. Not thread-safe.
class GradientScatter {
 public:
  static absl::StatusOr<std::unique_ptr<GradientScatter>> Create(ParameterShard* shard,
                                                                 Communicator* communicator,
                                                                 Ledger* ledger);
  // Starts a mini-batch: takes the memory if it is not held, all zero. The shard's gradients must
  // be mapped.
  absl::Status Begin();
  // Where to accumulate a group's full fp32 gradients (ViewLayerGradients, ViewGlobalGradients).
  // A layer's buffer is zero on return where there are several ranks.
  float* Group(int layer);
  // Collective: adds the ranks' sums to the shard. For layers after each micro-batch.
  absl::Status Reduce(int layer);
  // Collective: reduces the global group, which ends the mini-batch. The memory is kept.
  absl::Status Finish() { return Reduce(-1); }
  // Gives the memory back.
  absl::Status Release();

 private:
  GradientScatter() = default;
  bool solo() const { return shard_->plan().world_size() == 1; }

  ParameterShard* shard_ = nullptr;
  Communicator* communicator_ = nullptr;
  std::unique_ptr<MemoryRegion> globals_, layer_;
};

}  // namespace tandem
