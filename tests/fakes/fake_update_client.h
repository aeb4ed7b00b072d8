// A rollout in the same process: an UpdateTransaction behind UpdateClient, with faults.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "rollout_worker/weights/update_transaction.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem::testing {

class FakeUpdateClient : public UpdateClient {
 public:
  explicit FakeUpdateClient(UpdateTransaction* receiver) : receiver_(receiver) {}

  absl::StatusOr<int64_t> HeldVersion() override { return receiver_->version(); }
  absl::StatusOr<PeerConnection> Begin(const UpdateRequest& request,
                                       const ProducerSlots& slots) override {
    calls.push_back("begin");
    TANDEM_RETURN_IF_ERROR(fail_begin);
    request_ = request;
    slots_ = &slots;
    TANDEM_RETURN_IF_ERROR(receiver_->Begin(request.id, request.manifest, request.scope));
    if (scramble) TANDEM_RETURN_IF_ERROR(receiver_->Scramble());
    return PeerConnection();
  }
  // The slowest rollout there can be: a slot is read only when the publisher waits for it.
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override {
    if (pending_.count(slot) > 0) return Internal("slot {} is in use", slot);
    pending_[slot] = entries;
    return absl::OkStatus();
  }
  absl::Status WaitApply(int slot) override {
    const auto found = pending_.find(slot);
    if (found == pending_.end()) return absl::OkStatus();
    const std::vector<BucketEntry> entries = std::move(found->second);
    pending_.erase(found);
    if (buckets == fail_at_bucket) {
      return MakeStatus(absl::StatusCode::kUnavailable, "lost at bucket {}", buckets);
    }
    if (before_apply) before_apply(buckets, slots_->slot(slot), entries);
    ++buckets;
    for (const BucketEntry& entry : entries) {
      bytes_applied +=
          entry.rows * request_.manifest[static_cast<size_t>(entry.tensor)].row_bytes();
    }
    const absl::Status applied =
        receiver_->Apply(request_.id, {slots_->slot(slot), slots_->shape().slot_bytes}, entries);
    if (after_apply) after_apply(entries);
    return applied;
  }
  absl::Status Commit(const std::vector<Digest>& digests) override {
    calls.push_back("commit");
    if (!pending_.empty()) return Internal("commit with slots under way");
    slots_ = nullptr;
    return receiver_->Commit(request_.id, digests);
  }
  absl::Status Abort(const std::string& reason) override {
    calls.push_back("abort: " + reason);
    pending_.clear();
    slots_ = nullptr;
    receiver_->Abort();
    return absl::OkStatus();
  }

  std::vector<std::string> calls;
  int buckets = 0;            // applied
  int64_t bytes_applied = 0;  // of their entries
  int fail_at_bucket = -1;
  bool scramble = false;
  absl::Status fail_begin;
  std::function<void(int bucket, std::byte* slot, const std::vector<BucketEntry>&)> before_apply;
  std::function<void(const std::vector<BucketEntry>&)> after_apply;
  const UpdateRequest& request() const { return request_; }
  const ProducerSlots* slots() const { return slots_; }

 private:
  UpdateTransaction* const receiver_;
  UpdateRequest request_;
  const ProducerSlots* slots_ = nullptr;
  std::map<int, std::vector<BucketEntry>> pending_;
};

}  // namespace tandem::testing
