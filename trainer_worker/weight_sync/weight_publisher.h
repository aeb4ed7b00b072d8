// The trainer's side of the weight transaction: gather into slots, commit with the digests of what
// was meant to arrive.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/ledger.h"
#include "common/weights/digest.h"
#include "common/weights/layout.h"
#include "common/weights/weight_transport.h"
#include "trainer_worker/weight_sync/update_client.h"

namespace tandem {

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
class PublishSource {
 public:
  virtual ~PublishSource() = default;
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
                                        PublishSource& source,
                                        UpdateClient* client,
                                        UpdateScope scope = UpdateScope::kWhole);
  // Gives back slots that were kept, unless they are lasting (SlotMemory) or a rollout that did not
  // answer may still read them.
  void ReleaseSlots();
  // Of the last Publish that succeeded, in the layout's order; empty before.
  const std::vector<Digest>& digests() const { return digests_; }

 private:
  const SharedTensors* SharedBy(const PublishSource& source) const;
  absl::StatusOr<std::vector<Bucket>> Plan(const Manifest& manifest,
                                           const PublishSource& source,
                                           PublishReport* report) const;
  absl::StatusOr<SlotMemory*> TakeSlots(const std::vector<Bucket>& buckets,
                                        const SharedTensors* shared);
  // Gives up the slots of an update that has ended so, or keeps them for the next one.
  void SettleSlots(UpdateEnd end, bool committed);
  void Replace();
  absl::Status Send(const std::vector<Bucket>& buckets,
                    const Manifest& manifest,
                    UpdateScope scope,
                    PublishSource& source,
                    PublishTransaction& transaction,
                    PublishReport* report);

  const WeightLayout* const layout_;
  const PublishOptions options_;
  int64_t generation_ = 0;
  std::unique_ptr<SlotMemory> slots_;  // kept
  PairLink lasting_link_;              // of the last update that was committed by slots that last
  // That the rollout may have open although they are not used any more: freed after an update that
  // it has committed, which opened others.
  std::vector<std::unique_ptr<SlotMemory>> replaced_;
  std::vector<Digest> digests_;
};

}  // namespace tandem
