// Publishes a trainer's weights to its rollout. Implementations of UpdateClient: gRPC
// (grpc_update_client.h), in process (tests/fakes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/ledger.h"
#include "common/weights/digest.h"
#include "common/weights/layout.h"
#include "common/weights/manifest.h"
#include "common/weights/peer_connection.h"
#include "common/weights/update_request.h"
#include "common/weights/weight_transport.h"

namespace tandem {

// The calls that the publisher makes on its rollout. Not thread-safe. Every call has its own
// deadline. At most one Apply is pending per slot; those of different slots may run in any order.
class UpdateClient {
 public:
  virtual ~UpdateClient() = default;
  // The complete version that the rollout holds, even while it sleeps; -1: none, or unknown. A
  // rollout without one needs an update of all weights.
  virtual absl::StatusOr<int64_t> HeldVersion() { return -1; }
  // Whether the rollout shares no memory with this process, as on another host: what is put into
  // the slots is then sent over the connection that Begin returns.
  virtual bool over_tcp() const { return false; }
  // Opens the update and passes the slots, or connects to send their contents; `slots` outlives the
  // update. Whether the rollout
  // scrambles its weights first is the client's choice, not the request's. The caller keeps the
  // connection until the update has ended or, for persistent slots, until another update has been
  // committed. The end of the connection tells the rollout that the trainer died, and the other way
  // round.
  virtual absl::StatusOr<PeerConnection> Begin(const UpdateRequest& request,
                                               const ProducerSlots& slots) = 0;
  // The halves of Begin for a rollout that over_tcp() is true of, where one update goes to several:
  // opens it, and returns where the slots' contents are to be sent; connects there.
  virtual absl::StatusOr<StreamOffer> Open(const UpdateRequest& request);
  virtual absl::StatusOr<PeerConnection> Connect(const StreamOffer& offer,
                                                 const ProducerSlots& slots);
  // What the rollout told with the last commit.
  virtual StreamTraffic traffic() const { return {}; }
  // Asks the rollout to apply a filled slot; returns at once.
  virtual absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) = 0;
  // Waits until the slot may be filled again and returns the result of its Apply; OK if none is
  // pending.
  virtual absl::Status WaitApply(int slot) = 0;
  // `digests` are those of the manifest's tensors and, if its scope is adapters, then those of the
  // base that the rollout must hold, in the layout's order.
  virtual absl::Status Commit(const std::vector<Digest>& digests) = 0;
  // Best effort; waits for pending applies. The result says whether the rollout confirmed the
  // abort.
  virtual absl::Status Abort(const std::string& reason) = 0;
};

// How an update has ended for its slots, as far as the trainer knows.
enum class UpdateEnd {
  // The rollout confirmed the commit or the abort; only persistent slots are still open
  // (SlotMemory::persistent).
  kAcknowledged,
  // The rollout closed its end of the connection or died; it has no slot open.
  kPeerClosed,
  kUnknown,  // the rollout did not answer, and may still read the slots
};

// Runs one update: begin, bucket after bucket, commit. After the first failure it aborts the update
// and ignores further calls. With a null client, calls have no effect, except that Slot returns
// scratch memory. Not thread-safe.
class PublishTransaction {
 public:
  // Adds the time spent waiting for the client to `wait_seconds`.
  PublishTransaction(UpdateClient* client, WeightTransport* transport, double* wait_seconds)
      : client_(client), transport_(transport), wait_seconds_(wait_seconds) {}

  // Opens the update. While the transport is unproven (WeightTransport::unproven), also makes the
  // rollout open the slots, which may fail; after an error the rollout has no slot open.
  // `request.slots` is set here.
  void Begin(UpdateRequest request, const absl::StatusOr<ProducerSlots*>& slots);
  // Waits until the rollout has read the previous bucket in the next bucket's slot.
  void AwaitSlot();
  // Memory of `bytes` for the next bucket: its slot, after AwaitSlot, or scratch memory that is not
  // sent. ResourceExhausted: no scratch memory.
  absl::StatusOr<std::byte*> Slot(int64_t bytes);
  // Copies rows to their place in the slot.
  void Copy(std::byte* to, const void* rows, int64_t bytes);
  // Announces the filled bucket: rows at the offsets of `entries` in its slot, of which `bytes` are
  // filled.
  void Filled(const std::vector<BucketEntry>& entries, int64_t bytes);
  absl::Status Commit(const std::vector<Digest>& digests);
  void Abort(const std::string& reason);
  bool active() const { return client_ != nullptr && status_.ok(); }
  const absl::Status& status() const { return status_; }
  // The end of an update that has been committed or has failed.
  UpdateEnd end() const { return end_; }
  PeerConnection TakeConnection() { return std::move(link_); }
  // Of slots, over TCP.
  int64_t sent_bytes() const { return link_.sender == nullptr ? 0 : link_.sender->bytes(); }

 private:
  int slot() const { return static_cast<int>(bucket_ % slots_->slots()); }
  template <typename Call>
  absl::Status Timed(Call&& call);
  absl::Status BeginOnClient(const UpdateRequest& request);
  void Check(const absl::Status& status);
  UpdateEnd EndWithoutAnswer() const;
  absl::Status SendSlot(int64_t bytes);

  UpdateClient* const client_;
  WeightTransport* const transport_;
  double* const wait_seconds_;
  ProducerSlots* slots_ = nullptr;
  PeerConnection link_;
  absl::Status status_;
  UpdateEnd end_ = UpdateEnd::kAcknowledged;
  std::unique_ptr<ProducerSlots> scratch_;
  size_t bucket_ = 0;  // index of the bucket that is being filled
};

// Rows [row, row + rows) of a tensor.
struct TensorRows {
  const TensorPlace* place = nullptr;
  int64_t row = 0;
  int64_t rows = 0;
  int64_t row_bytes = 0;
};

// Tensors that the rollout can read directly.
struct SharedTensors {
  ShardMemory shard;             // must outlive every update
  std::vector<int64_t> offsets;  // of each tensor's first byte, in the layout's order
};

// The source of a publisher's rows, and the digests with which they must arrive: a trainer's
// shards, for which calls are collective.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Digests of all tensors, in the layout's order, computed from the original values and not from
  // the rows that the calls below return. Collective if those are.
  virtual absl::StatusOr<std::vector<Digest>> Digests() = 0;
  // Returns the address of dense row-major rows in the layout's dtype; that is `dest`, which has
  // room for them, if they had to be gathered or computed. Tensors are requested in the layout's
  // order, the ranges of a tensor in order and without gaps. Rows are valid until the next call.
  virtual absl::StatusOr<const void*> GatherRows(const TensorRows& rows, std::byte* dest) = 0;
  // Null: rows must be gathered. Otherwise, if the transport can share the shard, an update uses no
  // slots and requests no rows.
  virtual const SharedTensors* shared() const { return nullptr; }
};

// More than a group of trainers ever publishes before it is formed anew.
inline constexpr int64_t kUpdatesPerGroup = int64_t{1} << 32;

struct PublishOptions {
  int64_t slot_bytes = 4 << 20;  // weight_sync.bucket_mb
  int slots = 2;                 // weight_sync.slots
  Ledger* ledger = nullptr;
  // Slots of at most this many bytes in all are kept for the next update.
  int64_t keep_bytes = 0;
  // Bytes of a bucket without slots: it needs no memory, but every bucket is an RPC.
  int64_t direct_bytes = 256 << 20;
  WeightTransport* transport = HostTransport();  // outlives the publisher
  // Of the trainers' group: updates of a later group have higher numbers, also where their
  // trainer is a new process.
  int64_t group_generation = 0;
};

struct PublishReport {
  int64_t version = 0;
  int64_t bytes = 0;
  int64_t sent_bytes = 0;  // of slots, that this process sent over TCP
  int64_t buckets = 0;
  bool direct = false;  // sent without slots (SharedTensors)
  int64_t tensors = 0;
  // Compared with the version that this publisher committed last; all tensors at first.
  int64_t changed_tensors = 0;
  double changed_bytes_share = 0.0;  // bytes of changed tensors / bytes
  double seconds = 0.0;
  double gather_seconds = 0.0;
  double fill_seconds = 0.0;  // for copying rows into slots that were not gathered there
  double wait_seconds = 0.0;  // for the rollout: begin, full slots, commit
  std::string digest;         // of all tensors' digests, in hex
};

// The trainer's side of a weight update: gathers rows into slots and commits them with the digests
// of the original values. Not thread-safe: called by the trainer's engine thread.
class WeightPublisher {
 public:
  WeightPublisher(const WeightLayout* layout, PublishOptions options)
      : layout_(layout),
        options_(options),
        update_number_(options.group_generation * kUpdatesPerGroup) {}

  // Publishes `version` from `source` to `client`; with a null client only gathers, as a rank that
  // publishes nothing must. All rows of a source whose tensors are not shared are gathered even
  // after the client has failed, because gathering is collective; only a failure of the source ends
  // the pass early. A failed update is aborted on the rollout; the status is the client's or the
  // source's. With scope kAdapters only adapters that are not merged are gathered and sent, to
  // rollouts that hold the base; all ranks must pass the same scope.
  absl::StatusOr<PublishReport> Publish(int64_t version,
                                        WeightSource& source,
                                        UpdateClient* client,
                                        UpdateScope scope = UpdateScope::kWhole);
  // Whether the last Publish ended as its source failed, and not the client.
  bool source_failed() const { return source_failed_; }
  // Releases kept slots, unless they are persistent (SlotMemory::persistent) or a rollout that did
  // not answer may still read them.
  void ReleaseSlots();
  // Digests of the last Publish that succeeded, in the layout's order; empty before.
  const std::vector<Digest>& digests() const { return digests_; }

 private:
  // The tensors that the rollout of `client` can read in place; null: none.
  const SharedTensors* SharedBy(const WeightSource& source, const UpdateClient* client) const;
  absl::StatusOr<std::vector<Bucket>> Plan(const Manifest& manifest,
                                           const SharedTensors* shared,
                                           PublishReport* report) const;
  absl::StatusOr<ProducerSlots*> ReuseOrCreateSlots(const std::vector<Bucket>& buckets,
                                                    const SharedTensors* shared);
  // Drops the slots of an update that has ended in this way, or keeps them for the next update.
  void KeepOrDropSlots(UpdateEnd end, bool committed);
  void Replace();
  absl::Status Send(const std::vector<Bucket>& buckets,
                    const Manifest& manifest,
                    UpdateScope scope,
                    WeightSource& source,
                    const SharedTensors* shared,
                    PublishTransaction& transaction,
                    PublishReport* report);

  const WeightLayout* const layout_;
  const PublishOptions options_;
  int64_t update_number_;                 // of the last update
  bool source_failed_ = false;            // in the last update
  std::unique_ptr<ProducerSlots> slots_;  // kept between updates
  PeerConnection lasting_link_;           // of the last committed update with persistent slots
  // Slots that are no longer used but that the rollout may still have open. They are freed when it
  // has committed another update, for which it opened other slots.
  std::vector<std::unique_ptr<ProducerSlots>> replaced_;
  std::vector<Digest> digests_;
};

}  // namespace tandem
