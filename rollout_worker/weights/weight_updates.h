// The rollout's end of the pair: the update receiver, the socket that slots arrive on, their
// mapping. Speaks plain structs; rollout_service converts with common/net/update_codec.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/weights/pair_socket.h"
#include "rollout_worker/weights/update_transaction.h"

namespace tandem {

struct WeightReceiverOptions {
  std::string pair_socket;  // path of the Unix socket to make, at most 107 bytes
  // For the trainer to pass its slots, and for its device to fill one that it announced as filled.
  absl::Duration slots_timeout = absl::Seconds(30);
  Ledger* ledger = nullptr;                      // SharedRegion::MapForeign
  WeightTransport* transport = HostTransport();  // outlives the receiver
};

struct UpdateOpening {
  int64_t version = 0;
  int64_t generation = 0;
  SlotShape slots;
  Manifest manifest;
  bool scramble = false;                    // fill the weights with NaN first
  UpdateScope scope = UpdateScope::kWhole;  // of the manifest
};

// Not thread-safe: the engine thread calls it. State machine and memory are the caller's: handle
// kBegin, kApply, kCommit and kAbort (rollout_worker/weights/rollout_state.h) around these calls,
// reading core().applied() and core().version() afterwards; storage must be mapped.
class WeightReceiver {
 public:
  static absl::StatusOr<std::unique_ptr<WeightReceiver>> Create(
      std::unique_ptr<StorageOps> storage, const WeightReceiverOptions& options);

  const std::string& pair_socket() const { return listener_->path(); }
  const UpdateReceiver& core() const { return core_; }
  // Loaded from a checkpoint, or dropped.
  absl::Status AdoptVersion(int64_t version);
  void DropVersion();

  // Opens an update. One that is open is given up first if this one's generation is larger (its
  // trainer was replaced); Aborted if not. Otherwise as UpdateReceiver::Begin.
  absl::Status Begin(const UpdateOpening& opening);
  // The first Apply takes the slots from the socket. Unavailable: the trainer is gone; the update
  // has ended then. Otherwise as SlotMemory::BeginRead and UpdateReceiver::Apply.
  absl::Status Apply(int64_t version,
                     int64_t generation,
                     int slot,
                     const std::vector<BucketEntry>& entries);
  // Ends the update either way and unmaps the slots (except Aborted: not the open version or
  // generation).
  absl::Status Commit(int64_t version, int64_t generation, const std::vector<Digest>& digests);
  // Does nothing if no update is open. `version` < 0 aborts any; another version or generation than
  // the open one is ignored.
  void Abort(int64_t version, int64_t generation);
  // To be called now and then while an update is open: ends it when the trainer has died. OK while
  // all is well; Unavailable once, when it ended the update (InvalidArgument: other slots than
  // announced were passed). Also while holds_slots(): closes them when the trainer has died.
  absl::Status PollPeer();
  // Whether slots are open although no update is (SlotMemory::lasting).
  bool holds_slots() const { return lasting_link_.connection.valid(); }

  // Rows of one tensor, dense. NotFound; InvalidArgument: rows outside, or more than 1 MiB;
  // FailedPrecondition: no complete weights.
  absl::StatusOr<std::string> ReadRows(const std::string& name, int64_t row, int64_t rows) const;

 private:
  WeightReceiver(std::unique_ptr<StorageOps> storage,
                 std::unique_ptr<PairListener> listener,
                 const WeightReceiverOptions& options);
  absl::Status TakeSlots(absl::Duration timeout);
  absl::Status ApplySlot(int slot, const std::vector<BucketEntry>& entries);
  enum class Ended { kCommitted, kAborted };
  void DropSlots(Ended how);
  void ForgetSlots();

  const WeightReceiverOptions options_;
  UpdateReceiver core_;
  std::unique_ptr<PairListener> listener_;
  UpdateOpening opening_;
  ReceivedSlots received_;
  PairLink lasting_link_;  // of the last update by slots that last
};

}  // namespace tandem
