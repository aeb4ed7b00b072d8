// Rows of merged tensors: what a sync sends under LoRA.
#pragma once

#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/weights/weight_publisher.h"
#include "trainer_worker/lora/lora_weights.h"

namespace tandem {

// Collective: every rank calls for the same rows in the same order. Not thread-safe. Each rank
// merges its rows where they are sent from. Needs no memory.
class MergedTensorSource : public PublishSource {
 public:
  // Both outlive it.
  MergedTensorSource(LoraWeights* weights, Communicator* communicator)
      : weights_(weights), communicator_(communicator) {}
  // Of merges of their own, when the adapters were gathered (LoraWeights::Gather): an update that
  // carries the base instead, or older adapters, is refused by who compares them.
  absl::StatusOr<std::vector<Digest>> Digests() override {
    return weights_->Digests(*communicator_);
  }
  absl::StatusOr<const void*> GatherRows(const TensorRows& rows, std::byte* dest) override;

 private:
  LoraWeights* const weights_;
  Communicator* const communicator_;
};

}  // namespace tandem
