// What the trainer's publisher asks of its rollout. Implementations: gRPC (grpc_update_client.h),
// in process (tests/fakes).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/weights/bucket_plan.h"
#include "common/weights/digest.h"
#include "common/weights/manifest.h"
#include "common/weights/pair_link.h"
#include "common/weights/slot_memory.h"

namespace tandem {

struct UpdateOffer {
  int64_t version = 0;
  int64_t generation = 0;  // of the mapping; grows with every update, over restarts too
  Manifest manifest;
  UpdateScope scope = UpdateScope::kWhole;  // of the manifest
};

// Not thread-safe. Every call has a deadline of its own. At most one Apply is outstanding per slot;
// those of different slots may be carried out in any order.
class UpdateClient {
 public:
  virtual ~UpdateClient() = default;
  // The version that the rollout holds whole, asleep or not; -1: none, or not known. Whoever has
  // none needs an update of everything.
  virtual absl::StatusOr<int64_t> HeldVersion() { return -1; }
  // Opens the update and passes the slots; `slots` outlives the update. The link is to be kept
  // until the update has ended, or another has been committed if the slots last: its end tells the
  // rollout that the trainer died, and the other way round.
  virtual absl::StatusOr<PairLink> Begin(const UpdateOffer& offer, const SlotMemory& slots) = 0;
  // Asks to apply a filled slot; returns at once.
  virtual absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) = 0;
  // Waits until the slot may be filled again; its Apply's result. OK if none is outstanding.
  virtual absl::Status WaitApply(int slot) = 0;
  // Digests of the manifest's tensors and, where its scope is adapters, then those of the base's in
  // the layout's order, which the rollout must hold.
  virtual absl::Status Commit(const std::vector<Digest>& digests) = 0;
  // Best effort; waits for outstanding applies. The result says whether the rollout confirmed it.
  virtual absl::Status Abort(const std::string& reason) = 0;
};

}  // namespace tandem
