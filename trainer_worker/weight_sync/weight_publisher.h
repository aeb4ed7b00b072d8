// What the trainer's publisher asks of its rollout. Implementations: gRPC (grpc_update_client.h),
// in process (tests/fakes).
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
#include "common/weights/weight_transport.h"

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
  virtual absl::StatusOr<PeerConnection> Begin(const UpdateOffer& offer,
                                               const SlotMemory& slots) = 0;
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

// One update as its publisher drives it: begin, bucket after bucket, commit; after the first
// failure aborted, and the rest swallowed.

// How the rollout let go of an update's slots, as far as the trainer knows.
enum class UpdateEnd {
  kAnswered,  // it confirmed the commit or the abort: open is only what lasts
              // (SlotMemory::persistent)
  kGone,      // it has closed its end of the connection or died: nothing is open
  kUnknown,   // it did not answer, and may still read them
};

// Not thread-safe. A null client: every call does nothing, but for scratch.
class PublishTransaction {
 public:
  // Time spent waiting for the client is added to `wait_seconds`.
  PublishTransaction(UpdateClient* client, WeightTransport* transport, double* wait_seconds)
      : client_(client), transport_(transport), wait_seconds_(wait_seconds) {}

  // Also lets the rollout open the slots, where it may turn out to be unable to
  // (WeightTransport::unproven): a status other than OK leaves nothing open.
  void Begin(const UpdateOffer& offer, const absl::StatusOr<SlotMemory*>& slots);
  // Waits until the rollout has read what was in the next bucket's slot.
  void AwaitSlot();
  // Memory of `bytes` to fill with the next bucket: its slot, awaited, or scratch that nobody
  // reads. ResourceExhausted: no memory for that.
  absl::StatusOr<std::byte*> Slot(int64_t bytes);
  // Brings rows to their place in the slot.
  void Copy(std::byte* to, const void* rows, int64_t bytes);
  // The next bucket is there: rows at the offsets of `entries` in its slot, of which `bytes` are
  // filled.
  void Filled(const std::vector<BucketEntry>& entries, int64_t bytes);
  absl::Status Commit(const std::vector<Digest>& digests);
  void Abort(const std::string& reason);
  bool active() const { return client_ != nullptr && status_.ok(); }
  const absl::Status& status() const { return status_; }
  // Of an update that has been committed or has failed.
  UpdateEnd end() const { return end_; }
  PeerConnection TakeLink() { return std::move(link_); }

 private:
  int slot() const { return static_cast<int>(bucket_ % slots_->slots()); }
  template <typename Call>
  absl::Status Timed(Call&& call);
  absl::Status BeginOnClient(const UpdateOffer& offer);
  void Check(const absl::Status& status);
  UpdateEnd Unanswered() const;

  UpdateClient* const client_;
  WeightTransport* const transport_;
  double* const wait_seconds_;
  SlotMemory* slots_ = nullptr;
  PeerConnection link_;
  absl::Status status_;
  UpdateEnd end_ = UpdateEnd::kAnswered;
  std::unique_ptr<SlotMemory> scratch_;
  size_t bucket_ = 0;  // that is being filled
};

// The trainer's side of the weight transaction: gather into slots, commit with the digests of what
// was meant to arrive.
class PublishTransaction;
enum class UpdateEnd;

// Rows [row, row + rows) of a tensor.
struct TensorRows {
  const TensorPlace* place = nullptr;
  int64_t row = 0;
  int64_t rows = 0;
  int64_t row_bytes = 0;
};

// Tensors that lie where the rollout can read them itself.
struct SharedTensors {
  ShardMemory shard;             // outlives every update
  std::vector<int64_t> offsets;  // of each tensor's first byte, in the layout's order
};

// What a publisher sends, and what it must arrive as: a trainer's shards, where calls are
// collective.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Of all tensors, in the layout's order, from the values that were meant: not from what the
  // calls below hand out. Collective where those are.
  virtual absl::StatusOr<std::vector<Digest>> Digests() = 0;
  // Dense row-major rows in the layout's dtype: where they lie, which is `dest` (room for them) if
  // they had to be fetched. Tensors come in the layout's order, the ranges of a tensor in order and
  // without gaps, and are valid until the next call.
  virtual absl::StatusOr<const void*> GatherRows(const TensorRows& rows, std::byte* dest) = 0;
  // Null: rows must be gathered. Else an update leaves slots out, and asks for no rows, where the
  // transport can share the shard.
  virtual const SharedTensors* shared() const { return nullptr; }
};

struct PublishOptions {
  int64_t slot_bytes = 4 << 20;  // weight_sync.bucket_mb
  int slots = 2;                 // weight_sync.slots
  Ledger* ledger = nullptr;
  int64_t keep_bytes = 0;  // slots of at most so many bytes in all stay from update to update
  // Of one bucket without slots: it takes no memory, and every bucket is a call.
  int64_t direct_bytes = 256 << 20;
  WeightTransport* transport = HostTransport();  // outlives the publisher
};

struct PublishReport {
  int64_t version = 0;
  int64_t bytes = 0;
  int64_t buckets = 0;
  bool direct = false;  // without slots: SharedTensors
  int64_t tensors = 0;
  int64_t changed_tensors = 0;       // against what this publisher committed last; all at first
  double changed_bytes_share = 0.0;  // bytes of changed tensors ÷ bytes
  double seconds = 0.0;
  double gather_seconds = 0.0;
  double fill_seconds = 0.0;  // copying what was not gathered into its slot
  double wait_seconds = 0.0;  // for the rollout: begin, full slots, commit
  std::string digest;         // of all tensor digests, hex
};

// Not thread-safe: the trainer's engine thread calls it.
class WeightPublisher {
 public:
  WeightPublisher(const WeightLayout* layout, PublishOptions options)
      : layout_(layout), options_(options) {}

  // Publishes `version` from `source` to `client`; with a null client it only gathers, as a rank
  // that publishes nothing must. A source whose tensors are not shared is asked for every row even
  // after the client has failed, because gathering is collective; only its own failure ends the
  // pass early. A failed update is aborted on the rollout; the status is the client's or the
  // source's. With scope kAdapters only adapters that are not merged are gathered and sent, to
  // rollouts that hold the base: the same scope on every rank.
  absl::StatusOr<PublishReport> Publish(int64_t version,
                                        WeightSource& source,
                                        UpdateClient* client,
                                        UpdateScope scope = UpdateScope::kWhole);
  // Gives back slots that were kept, unless they are lasting (SlotMemory) or a rollout that did not
  // answer may still read them.
  void ReleaseSlots();
  // Of the last Publish that succeeded, in the layout's order; empty before.
  const std::vector<Digest>& digests() const { return digests_; }

 private:
  const SharedTensors* SharedBy(const WeightSource& source) const;
  absl::StatusOr<std::vector<Bucket>> Plan(const Manifest& manifest,
                                           const WeightSource& source,
                                           PublishReport* report) const;
  absl::StatusOr<SlotMemory*> TakeSlots(const std::vector<Bucket>& buckets,
                                        const SharedTensors* shared);
  // Gives up the slots of an update that has ended so, or keeps them for the next one.
  void SettleSlots(UpdateEnd end, bool committed);
  void Replace();
  absl::Status Send(const std::vector<Bucket>& buckets,
                    const Manifest& manifest,
                    UpdateScope scope,
                    WeightSource& source,
                    PublishTransaction& transaction,
                    PublishReport* report);

  const WeightLayout* const layout_;
  const PublishOptions options_;
  int64_t generation_ = 0;
  std::unique_ptr<SlotMemory> slots_;  // kept
  PeerConnection lasting_link_;        // of the last update that was committed by slots that last
  // That the rollout may have open although they are not used any more: freed after an update that
  // it has committed, which opened others.
  std::vector<std::unique_ptr<SlotMemory>> replaced_;
  std::vector<Digest> digests_;
};

}  // namespace tandem
