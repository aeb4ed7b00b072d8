// Where full gradients of adapters add up on a rank until the mini-batch ends: the shard's own with
// a single rank, else memory for all of them, summed over ranks once.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/comm/ordered_communicator.h"
#include "trainer_worker/trained_weights/merged_lora.h"

namespace tandem {

// Not thread-safe.
class RankSums {
 public:
  // All pointers outlive the object, only `communicator` may end before it.
  static absl::StatusOr<std::unique_ptr<RankSums>> Create(LoraWeights* weights,
                                                          OrderedCommunicator* communicator,
                                                          Ledger* ledger);
  // Takes the memory if it is not held; all zero. The shard's own are its owner's to zero.
  absl::Status Begin();
  // Of a matrix of spec().targets[target], dense.
  float* Of(size_t target, LoraMatrix matrix) const;
  // Collective: the sums over ranks go to the shard's gradients.
  absl::Status Finish();
  absl::Status Release();

 private:
  RankSums(LoraWeights* weights, OrderedCommunicator* communicator)
      : weights_(weights), communicator_(communicator) {}

  LoraWeights* const weights_;
  OrderedCommunicator* const communicator_;
  std::unique_ptr<MemoryRegion> sums_;  // null with a single rank
};

}  // namespace tandem
