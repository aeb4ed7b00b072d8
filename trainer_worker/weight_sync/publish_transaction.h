// One update as its publisher drives it: begin, bucket after bucket, commit; after the first
// failure aborted, and the rest swallowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/weights/bucket_plan.h"
#include "common/weights/digest.h"
#include "common/weights/weight_transport.h"
#include "trainer_worker/weight_sync/update_client.h"

namespace tandem {

// How the rollout let go of an update's slots, as far as the trainer knows.
enum class UpdateEnd {
  kAnswered,  // it confirmed the commit or the abort: open is only what lasts (SlotMemory::lasting)
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
  PairLink TakeLink() { return std::move(link_); }

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
  PairLink link_;
  absl::Status status_;
  UpdateEnd end_ = UpdateEnd::kAnswered;
  std::unique_ptr<SlotMemory> scratch_;
  size_t bucket_ = 0;  // that is being filled
};

}  // namespace tandem
