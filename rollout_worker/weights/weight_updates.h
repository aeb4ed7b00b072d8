// The rollout's end of a weight update: the socket that slots arrive on, their mapping, and the
// transaction that fills the storage from them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/weights/peer_connection.h"
#include "rollout_worker/weights/rollout_state.h"
#include "rollout_worker/weights/update_transaction.h"
#include "rollout_worker/weights/weight_storage.h"

namespace tandem {

struct WeightUpdatesOptions {
  std::string pair_socket;  // path of the Unix socket to create, at most 107 bytes
  // How long the trainer may take to pass its slots, and its device to fill an announced slot.
  absl::Duration slots_timeout = absl::Seconds(30);
  Ledger* ledger = nullptr;                      // SharedRegion::MapForeign
  WeightTransport* transport = HostTransport();  // outlives the object
  // Where the injected fault "resident weights" flips a bit after a commit; may be null.
  WeightStorage* resident = nullptr;
};

struct UpdateRequest {
  UpdateId id;
  SlotShape slots;
  Manifest manifest;
  bool scramble = false;                    // fill the weights with NaN first
  UpdateScope scope = UpdateScope::kWhole;  // of the manifest
};

// The only class that sees socket, slots and transaction. Every call asks `states` whether it is
// legal (FailedPrecondition, and nothing changes) and brings them in line with its outcome; the
// caller has closed admission before Begin, and RolloutMemory has mapped the weights. Not
// thread-safe: the engine thread's.
class WeightUpdates {
 public:
  // `states` outlives the object.
  static absl::StatusOr<std::unique_ptr<WeightUpdates>> Create(std::unique_ptr<StorageOps> storage,
                                                               RolloutStates* states,
                                                               const WeightUpdatesOptions& options);

  // Opens an update. An open one is aborted first if this one's generation is larger (its trainer
  // was replaced); Aborted if it is not. Otherwise as UpdateTransaction::Begin.
  absl::Status Begin(const UpdateRequest& request);
  // The first Apply takes the slots from the socket. Unavailable: the trainer has died, and the
  // update has ended. Otherwise as SlotMemory::BeginRead and UpdateTransaction::Apply.
  absl::Status Apply(UpdateId id, int slot, const std::vector<BucketEntry>& entries);
  // Ends the update whether or not it succeeds, and unmaps the slots (except Aborted: not the open
  // update).
  absl::Status Commit(UpdateId id, const std::vector<Digest>& digests);
  // Ignored unless `id` is the open update; a negative version means any.
  void Abort(UpdateId id);
  // To be called now and then while needs_polling(): ends the update, or closes persistent slots,
  // of a trainer that has died. Unavailable once, when it ended the update (InvalidArgument: the
  // passed slots were not the announced ones).
  absl::Status Poll();
  // An update is open, or slots are (SlotMemory::persistent).
  bool needs_polling() const { return transaction_.updating() || holds_slots(); }
  bool holds_slots() const { return persistent_connection_.socket.valid(); }

  // The storage was filled from a checkpoint, or has lost its contents.
  absl::Status AdoptVersion(int64_t version);
  void DropVersion();

  int64_t version() const { return transaction_.version(); }  // kNoVersion: no complete weights
  // OK if a request for `version` (-1: any) may run now.
  absl::Status AdmitRequest(int64_t version) const;
  // Whether the weights are `version`, equal to those that were accepted, and their padding zero.
  // DataLoss names the first difference; FailedPrecondition: another version, or not readable now.
  absl::Status Verify(int64_t version) const;
  // In the layout's order. FailedPrecondition: there are no complete weights, or they are not
  // mapped.
  absl::StatusOr<std::vector<Digest>> Digests() const;
  // Rows of one tensor, dense. NotFound; InvalidArgument: rows outside, or more than 1 MiB;
  // FailedPrecondition as Digests.
  absl::StatusOr<std::string> ReadRows(const std::string& name, int64_t row, int64_t rows) const;

  const std::string& pair_socket() const { return listener_->path(); }
  const UpdateTransaction& transaction() const { return transaction_; }

 private:
  WeightUpdates(std::unique_ptr<StorageOps> storage,
                std::unique_ptr<PeerListener> listener,
                RolloutStates* states,
                const WeightUpdatesOptions& options);
  absl::Status Open(const UpdateRequest& request);
  absl::Status ReceiveSlots(absl::Duration timeout);
  absl::Status ApplyBucket(UpdateId id, int slot, const std::vector<BucketEntry>& entries);
  absl::Status ApplySlot(int slot, const std::vector<BucketEntry>& entries);
  enum class Ended { kCommitted, kAborted };
  void CloseSlots(Ended how);
  void ForgetSlots();
  // Reports whether the weights are complete and, if the open update has ended without a new
  // version, leaves Updating.
  void Settle();
  absl::Status CheckReadable() const;

  const WeightUpdatesOptions options_;
  RolloutStates* const states_;
  UpdateTransaction transaction_;
  const std::unique_ptr<PeerListener> listener_;
  UpdateRequest request_;  // the open one, or the last
  ReceivedSlots received_;
  PeerConnection persistent_connection_;  // of the last update whose slots are persistent
};

}  // namespace tandem
