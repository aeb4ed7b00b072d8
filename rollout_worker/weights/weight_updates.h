// The rollout's side of weight updates: the connection over which slots or their contents arrive,
// and the transaction that copies them into the storage.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/weights/peer_connection.h"
#include "common/weights/tcp/slot_listener.h"
#include "common/weights/tcp/slot_relay.h"
#include "common/weights/update_request.h"
#include "rollout_worker/weights/rollout_state.h"
#include "rollout_worker/weights/update_transaction.h"
#include "rollout_worker/weights/weight_storage.h"

namespace tandem {

struct WeightUpdatesOptions {
  std::string pair_socket;  // path of the Unix socket to create, at most 107 bytes
  // The timeout for the trainer to pass its slots, and for its device to fill an announced slot.
  // Over TCP: for the connection, and for each part of what a slot is filled with.
  absl::Duration slots_timeout = absl::Seconds(30);
  Ledger* ledger = nullptr;                      // counts slots mapped by SharedRegion::MapForeign
  WeightTransport* transport = HostTransport();  // outlives the object
  // Where contents of slots arrive over TCP; null: no update may come over TCP. Outlives the
  // object.
  SlotListener* slot_listener = nullptr;
  TcpSecurity relay_security;  // of the connection to the next rollout of a chain
  // The injected fault "resident weights" flips a bit here after a commit; may be null.
  WeightStorage* resident = nullptr;
};

// The only class that uses the socket, the slots and the transaction. Every call first asks
// `states` whether it is legal (FailedPrecondition if not, and nothing changes), and reports its
// outcome to them. The caller closes admission before Begin, and RolloutMemory maps the weights.
// Not thread-safe: used by the engine thread.
class WeightUpdates {
 public:
  // `states` must outlive the object.
  static absl::StatusOr<std::unique_ptr<WeightUpdates>> Create(std::unique_ptr<StorageOps> storage,
                                                               RolloutStates* states,
                                                               const WeightUpdatesOptions& options);

  // Whether Begin would refuse the update with Aborted; changes nothing.
  absl::Status CheckTurn(const UpdateRequest& request) const;
  // Opens an update. If one is open already, it is aborted first if the new number is larger
  // (its trainer was replaced); Aborted if it is not, or if the trainers' group is older than the
  // newest that `states` knows, of which the request tells too. FailedPrecondition: it is to come
  // over TCP, and there is no slot_listener; InvalidArgument: and its slots are none that a trainer
  // sends. Other errors as UpdateTransaction::Begin. `offer` (may be null) receives where the
  // trainer sends the contents of slots that come over TCP.
  absl::Status Begin(const UpdateRequest& request, StreamOffer* offer = nullptr);
  // Applies a bucket. The first Apply receives the slots from the socket. Unavailable: the trainer
  // has died, and the update has ended. Other errors as SlotReceiver::Await, which end the update
  // too, ConsumerSlots::BeginRead and UpdateTransaction::Apply.
  absl::Status Apply(UpdateId id, int slot, const std::vector<BucketEntry>& entries);
  // Ends the update, whether or not it succeeds, and unmaps the slots. Aborted: `id` is not the
  // open update, which stays open. In a chain it first waits until all slots have gone on to the
  // next rollout. `traffic` (may be null) receives what crossed its connections.
  absl::Status Commit(UpdateId id,
                      const std::vector<Digest>& digests,
                      StreamTraffic* traffic = nullptr);
  // Ends the open update if its id is `id`, or any open update if the version is negative.
  void Abort(UpdateId id);
  // Must be called regularly while needs_polling(). Ends the update of a trainer that has died, or
  // closes its persistent slots. Unavailable, once: it ended the update; InvalidArgument: it ended
  // the update as the passed slots were not the announced ones; other errors as of
  // SlotReceiver::why.
  absl::Status Poll();
  // Whether an update or persistent slots (SlotMemory::persistent) are open.
  bool needs_polling() const { return transaction_.updating() || holds_slots(); }

  // Called when the storage was filled from a checkpoint, or has lost its contents.
  absl::Status AdoptVersion(int64_t version);
  void DropVersion();
  int64_t version() const { return transaction_.version(); }  // kNoVersion: no complete weights
  // OK if a request for `version` (-1: any) may run now.
  absl::Status AdmitRequest(int64_t version) const;
  // Checks that the weights are `version`, unchanged since they were accepted, and their padding
  // zero. DataLoss names the first difference; FailedPrecondition: the rollout holds another
  // version, or its weights are not readable now.
  absl::Status Verify(int64_t version) const;
  // Digests in the layout's order. FailedPrecondition: there are no complete weights, or they are
  // not mapped.
  absl::StatusOr<std::vector<Digest>> Digests() const;
  // Rows of one tensor, dense. NotFound: no such tensor. InvalidArgument: rows outside the tensor,
  // or more than 1 MiB. FailedPrecondition as for Digests.
  absl::StatusOr<std::string> ReadRows(const std::string& name, int64_t row, int64_t rows) const;

  const std::string& pair_socket() const { return listener_->path(); }
  const UpdateTransaction& transaction() const { return transaction_; }

 private:
  WeightUpdates(std::unique_ptr<StorageOps> storage,
                std::unique_ptr<PeerListener> listener,
                RolloutStates* states,
                const WeightUpdatesOptions& options);
  bool holds_slots() const { return persistent_connection_.socket.valid(); }
  absl::Status CheckStream(const UpdateRequest& request) const;
  absl::Status Open(const UpdateRequest& request, StreamOffer* offer);
  absl::Status ReceiveSlots(absl::Duration timeout);
  absl::StatusOr<ReceivedSlots> AcceptStream(absl::Duration timeout);
  absl::Status ApplyBucket(UpdateId id, int slot, const std::vector<BucketEntry>& entries);
  std::unique_ptr<SlotRelay> MakeRelay(SlotReceiver* receiver) const;
  absl::Status AwaitSlot(int slot);
  absl::Status ApplySlot(int slot, const std::vector<BucketEntry>& entries);
  absl::Status EndUpdate(const absl::Status& why);
  enum class Ended { kCommitted, kAborted };
  void CloseSlots(Ended how);
  void ForgetSlots();
  // Reports to states_ whether the weights are complete, and leaves Updating if the open update has
  // ended without a new version.
  void ReportToStates();
  absl::Status CheckReadable() const;

  const WeightUpdatesOptions options_;
  RolloutStates* const states_;
  UpdateTransaction transaction_;
  const std::unique_ptr<PeerListener> listener_;
  UpdateRequest request_;  // of the open update, or of the last one
  ReceivedSlots received_;
  std::unique_ptr<SlotRelay> relay_;  // in a chain: of received_, and destroyed before it
  StreamTraffic traffic_;
  PeerConnection persistent_connection_;  // of the last committed update whose slots are persistent
};

}  // namespace tandem
