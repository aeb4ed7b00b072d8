// From full gradients of a group to this rank's shard of them.
#pragma once

#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/ordered_communicator.h"
#include "common/device/device.h"
#include "trainer_worker/layers/gradient_accumulator.h"
#include "trainer_worker/shard/parameter_shard.h"

namespace tandem {

// A single rank accumulates straight into its shard. Several ranks accumulate a layer's gradients
// in a buffer that is summed over ranks after every micro-batch, all of its tensors in one
// collective; the global group's buffer gathers the whole mini-batch and is summed once, at its
// end. On a GPU layers take turns in two buffers: the communication thread sums one, in the order
// of the calls, while the layer before it computes into the other. The shard's gradients are whole
// after Finish. Not thread-safe.
class ShardedGradients : public GradientAccumulator {
 public:
  // All pointers must outlive the object, only `communicator` may end before it.
  static absl::StatusOr<std::unique_ptr<ShardedGradients>> Create(ParameterShard* shard,
                                                                  OrderedCommunicator* communicator,
                                                                  Ledger* ledger);
  // Waits for what is being summed.
  ~ShardedGradients() override;

  // Starts a mini-batch: takes the memory if it is not held, all zero. The shard's gradients must
  // be mapped. Waits for what an earlier mini-batch, which failed, has left.
  absl::Status Begin() override;
  // Where to accumulate a group's full fp32 gradients (ViewLayerGradients, ViewGlobalGradients).
  // A layer's buffer is zero on return where there are several ranks. Errors: those of the sum that
  // had the buffer before.
  absl::StatusOr<float*> Group(int layer) override;
  // Collective: adds the ranks' sums to the shard, on a GPU some time before Finish returns. For
  // layers after each micro-batch. Errors that come later are those of Group or Finish.
  absl::Status Reduce(int layer) override;
  // Collective: reduces the global group, which ends the mini-batch. The memory is kept.
  absl::Status Finish() override;
  // Gives the memory back.
  absl::Status Release() override;

 private:
  using Result = OrderedCommunicator::Result;

  ShardedGradients() = default;
  bool solo() const { return shard_->plan().world_size() == 1; }
  size_t BufferOf(int layer) const { return static_cast<size_t>(layer) % sums_.size(); }
  float* Address(int layer) const;
  void Zero(int layer);
  // A group's tensors, each from its place in the buffer to this rank's rows in the shard.
  std::vector<ScatteredSum> SumsOf(int layer) const;
  // What became of a sum that was started.
  static absl::Status Settle(Result& sum);
  void WaitForAll();

  ParameterShard* shard_ = nullptr;
  OrderedCommunicator* communicator_ = nullptr;
  std::unique_ptr<MemoryRegion> globals_, layers_;  // null with a single rank
  std::vector<Result> sums_;  // of the layers' buffers: what is under way until it has been seen
};

}  // namespace tandem
