// A rollout that takes weights over TCP, and the client of a trainer that sends them, in one
// process, so that a test can come between the two.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "common/device/ledger.h"
#include "common/process/threads.h"
#include "common/weights/tcp/slot_listener.h"
#include "rollout_worker/weights/weight_updates.h"
#include "tests/fakes/memory_weights.h"
#include "tests/support/listen_for_slots.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem::testing {

struct StreamRollout {
  explicit StreamRollout(const WeightLayout& rollout_layout,
                         const TcpSecurity& security = {},
                         absl::Duration slots_timeout = kPatience,
                         const TcpSecurity& relay_security = {})
      : layout(rollout_layout), storage(static_cast<size_t>(layout.total_bytes())) {
    auto listening = ListenOnLoopback(security);
    INFO(listening.status().ToString());
    REQUIRE(listening.ok());
    listener = *std::move(listening);
    WeightUpdatesOptions options;
    options.pair_socket = (dir.path() / "pair.sock").string();
    options.slots_timeout = slots_timeout;
    options.ledger = &ledger;
    options.slot_listener = listener.get();
    options.relay_security = relay_security;
    states.set_mapped(true, true);
    auto created = WeightUpdates::Create(
        CreateCpuStorageOps(&layout, storage.data(), std::make_shared<ThreadPool>(1)), &states,
        options);
    REQUIRE(created.ok());
    updates = *std::move(created);
  }
  absl::Status Begin(const UpdateRequest& request) {
    states.CloseAdmission();
    return updates->Begin(request, &offer);
  }
  int64_t BucketBytes() const { return BytesOf(ledger.Snapshot(), "bucket"); }
  bool Holds(const WeightPublisher& publisher) const {
    const auto held = updates->Digests();
    return held.ok() && *held == publisher.digests();
  }

  TempDir dir;
  Ledger ledger;
  const WeightLayout layout;
  std::vector<std::byte> storage;
  RolloutStates states;
  StreamOffer offer;  // of the last update that was begun
  std::unique_ptr<SlotListener> listener;
  std::unique_ptr<WeightUpdates> updates;
};

// Calls of a trainer over "gRPC", in this process: a slot is applied when the trainer waits for it.
class StreamClient : public UpdateClient {
 public:
  explicit StreamClient(StreamRollout* rollout, TcpSecurity security = {})
      : rollout_(rollout), security_(std::move(security)) {}

  bool over_tcp() const override { return true; }
  absl::StatusOr<PeerConnection> Begin(const UpdateRequest& request,
                                       const ProducerSlots& slots) override {
    TANDEM_ASSIGN_OR_RETURN(const StreamOffer offer, Open(request));
    return Connect(offer, slots);
  }
  absl::StatusOr<StreamOffer> Open(const UpdateRequest& request) override {
    id_ = request.id;
    TANDEM_RETURN_IF_ERROR(rollout_->Begin(request));
    StreamOffer offer = rollout_->offer;
    if (on_offer) on_offer(offer);
    return offer;
  }
  absl::StatusOr<PeerConnection> Connect(const StreamOffer& offer,
                                         const ProducerSlots& slots) override {
    StreamTarget target = {.address = offer.address,
                           .ticket = offer.ticket,
                           .update_number = id_.update_number,
                           .shape = slots.shape()};
    if (on_target) on_target(target);
    PeerConnection connection;
    TANDEM_ASSIGN_OR_RETURN(connection.sender, SlotSender::Dial(target, security_, timeout));
    return connection;
  }
  StreamTraffic traffic() const override { return traffic_; }
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override {
    pending_[slot] = entries;
    return absl::OkStatus();
  }
  absl::Status WaitApply(int slot) override {
    const auto found = pending_.find(slot);
    if (found == pending_.end()) return absl::OkStatus();
    const std::vector<BucketEntry> entries = std::move(found->second);
    pending_.erase(found);
    ++applied;
    if (before_apply) before_apply();
    return rollout_->updates->Apply(id_, slot, entries);
  }
  absl::Status Commit(const std::vector<Digest>& digests) override {
    const absl::Status committed = rollout_->updates->Commit(id_, digests, &traffic_);
    if (after_commit) after_commit();
    return committed;
  }
  absl::Status Abort(const std::string& /*reason*/) override {
    pending_.clear();
    rollout_->updates->Abort(id_);
    return absl::OkStatus();
  }

  std::function<void(StreamTarget&)> on_target;  // before it is dialled
  std::function<void(StreamOffer&)> on_offer;    // before anybody is told of it
  std::function<void()> before_apply;
  std::function<void()> after_commit;
  absl::Duration timeout = kPatience;
  int applied = 0;

 private:
  StreamRollout* const rollout_;
  const TcpSecurity security_;
  UpdateId id_;
  StreamTraffic traffic_;
  std::map<int, std::vector<BucketEntry>> pending_;
};

}  // namespace tandem::testing
