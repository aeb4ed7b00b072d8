// Reduces full gradients of a group to this rank's shard of them.
#pragma once

#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/ordered_communicator.h"
#include "common/device/device.h"
#include "trainer_worker/layers/gradient_accumulator.h"
#include "trainer_worker/shard/parameter_shard.h"

namespace tandem {

// A single rank accumulates directly into its shard. Several ranks accumulate a layer's gradients
// in a buffer that is summed over ranks after every micro-batch, all of its tensors in one
// collective; the global group's buffer accumulates the complete mini-batch and is summed once, at
// its end. On a GPU layers alternate between two buffers: the communication thread sums one, in the
// order of the calls, while the layer before it computes into the other. The shard's gradients are
// complete after Finish. Not thread-safe.
class ShardedGradients : public GradientAccumulator {
 public:
  // All pointers must outlive the object, except that `communicator` may be destroyed before it.
  static absl::StatusOr<std::unique_ptr<ShardedGradients>> Create(ParameterShard* shard,
                                                                  OrderedCommunicator* communicator,
                                                                  Ledger* ledger);
  // Waits for the sums in progress.
  ~ShardedGradients() override;

  // Starts a mini-batch: allocates the memory if it is not allocated, and zeroes it. The shard's
  // gradients must be mapped. Waits for the sums of an earlier mini-batch that failed.
  absl::Status Begin() override;
  // The buffer to which to add a group's full fp32 gradients (ViewLayerGradients,
  // ViewGlobalGradients). With several ranks a layer's buffer is zero on return. Errors: those of
  // the previous sum of this buffer.
  absl::StatusOr<float*> Group(int layer) override;
  // Collective: adds the ranks' sums to the shard. Called for layers after each micro-batch. On a
  // GPU the sum completes later, at the latest in Finish; its errors are returned by Group or
  // Finish.
  absl::Status Reduce(int layer) override;
  // Collective: reduces the global group, which ends the mini-batch. Keeps the memory.
  absl::Status Finish() override;
  // Releases the memory.
  absl::Status Release() override;

 private:
  using Result = OrderedCommunicator::Result;

  ShardedGradients() = default;
  bool solo() const { return shard_->plan().world_size() == 1; }
  size_t BufferOf(int layer) const { return static_cast<size_t>(layer) % sums_.size(); }
  float* Address(int layer) const;
  void Zero(int layer);
  // A group's tensors, each with its address in the buffer and that of this rank's rows in the
  // shard.
  std::vector<ScatteredSum> SumsOf(int layer) const;
  // Waits for a sum that was started and returns its status.
  static absl::Status Await(Result& sum);
  void WaitForAll();

  ParameterShard* shard_ = nullptr;
  OrderedCommunicator* communicator_ = nullptr;
  std::unique_ptr<MemoryRegion> globals_, layers_;  // null with a single rank
  // One per buffer of layers: the sum in progress, until its status was read.
  std::vector<Result> sums_;
};

}  // namespace tandem
