// What a sync sends under LoRA: merged weights, or the base and the adapters beside it.
#pragma once

#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "trainer_worker/shard/weight_rows.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem {

// A policy that knows what its tensors must arrive as, from calculations that what is sent has no
// part in: an update that carries something else, or older adapters, is refused by who compares.
class DigestedPolicy : public PolicyRows {
 public:
  // Collective: of all tensors in the layout's dtype and order. FailedPrecondition: adapters were
  // not gathered.
  virtual absl::StatusOr<std::vector<Digest>> Digests(Communicator& communicator) const = 0;
};

// Collective: every rank calls for the same rows in the same order. Not thread-safe. Each rank
// makes its rows where they are sent from. Needs no memory.
class LoraTensorSource : public PublishSource {
 public:
  // Both outlive it.
  LoraTensorSource(DigestedPolicy* policy, Communicator* communicator)
      : policy_(policy), communicator_(communicator) {}
  absl::StatusOr<std::vector<Digest>> Digests() override {
    return policy_->Digests(*communicator_);
  }
  absl::StatusOr<const void*> GatherRows(const TensorRows& rows, std::byte* dest) override;

 private:
  DigestedPolicy* const policy_;
  Communicator* const communicator_;
};

}  // namespace tandem
