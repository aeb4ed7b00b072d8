// Publishes to several rollouts at once, each of which passes on what it is sent: the trainer sends
// the weights once. Calls go from the trainer to every rollout, so that each accepts or refuses the
// version by itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/weights/slot_stream.h"
#include "common/weights/update_request.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem {

// How an update has ended for one rollout of a chain.
struct ChainOutcome {
  absl::Status status;  // OK: it holds the version
  StreamTraffic traffic;
};

// The first rollout that accepts the update is sent the slots, and gives the pace: WaitApply waits
// for it alone. Each of the others has a thread here that makes its calls in order. A rollout that
// fails ends its own part of the update and that of those behind it, and the rest go on; errors of
// the calls are those of the first one. Commit is OK if any rollout has accepted the version;
// outcomes() says which. Not thread-safe.
class ChainUpdateClient : public UpdateClient {
 public:
  // In the order of the chain; over_tcp() is true of all.
  explicit ChainUpdateClient(std::vector<std::unique_ptr<UpdateClient>> rollouts);
  ~ChainUpdateClient() override;

  absl::StatusOr<int64_t> HeldVersion() override;
  bool over_tcp() const override { return true; }
  absl::StatusOr<PeerConnection> Begin(const UpdateRequest& request,
                                       const ProducerSlots& slots) override;
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override;
  absl::Status WaitApply(int slot) override;
  absl::Status Commit(const std::vector<Digest>& digests) override;
  absl::Status Abort(const std::string& reason) override;

  // Whether an update has been begun and has ended for all rollouts.
  bool ended() const { return ended_; }
  // Of that update, in the order of the chain.
  const std::vector<ChainOutcome>& outcomes() const { return outcomes_; }
  int64_t accepted() const;  // of them hold the version

 private:
  class Follower;

  // Opens the update on all rollouts, the last one first; those that refuse are not in the chain.
  void OpenAll(const UpdateRequest& request);
  UpdateClient& first() const { return *rollouts_[first_]; }
  // Waits until they have ended their part of the update.
  void JoinFollowers();

  const std::vector<std::unique_ptr<UpdateClient>> rollouts_;
  std::vector<ChainOutcome> outcomes_;
  size_t first_ = 0;   // the rollout that is sent the slots
  StreamOffer offer_;  // where
  std::vector<std::unique_ptr<Follower>> followers_;
  bool ended_ = false;
};

}  // namespace tandem
