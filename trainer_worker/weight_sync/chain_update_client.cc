#include "trainer_worker/weight_sync/chain_update_client.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/base/bounded_queue.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/process/threads.h"

namespace tandem {
namespace {

// Buckets that a rollout may be behind the first one. What rollouts and connections between them
// hold is far less.
constexpr size_t kMostBehind = 1024;

struct FilledBucket {
  int slot = 0;
  std::vector<BucketEntry> entries;
};

}  // namespace

// Makes the calls to a rollout that is not the first one, on a thread of its own.
class ChainUpdateClient::Follower {
 public:
  Follower(UpdateClient* client, ChainOutcome* outcome)
      : client_(client),
        outcome_(outcome),
        buckets_(kMostBehind),
        thread_("weight chain", [this] { Run(); }) {}
  ~Follower() { Join(); }

  void Apply(int slot, const std::vector<BucketEntry>& entries) { buckets_.Push({slot, entries}); }
  // When all buckets have been applied. Call Join then.
  void Commit(const std::vector<Digest>& digests) {
    digests_ = digests;
    buckets_.Close();
  }
  // Without Commit before it the update is aborted.
  void Join() {
    buckets_.Close();
    const OutsideWait wait;
    thread_.Join();
  }

 private:
  void Run() {
    absl::Status& status = outcome_->status;
    while (const auto bucket = buckets_.Pop()) {
      if (status.ok()) status = Pass(*bucket);
      if (!status.ok()) AbortOnce();
    }
    if (status.ok()) status = End();
    if (!status.ok()) AbortOnce();
  }
  absl::Status Pass(const FilledBucket& bucket) {
    TANDEM_RETURN_IF_ERROR(client_->WaitApply(bucket.slot));
    slots_ = std::max(slots_, bucket.slot + 1);
    return client_->StartApply(bucket.slot, bucket.entries);
  }
  absl::Status End() {
    if (!digests_) return absl::AbortedError("the update has ended before its commit");
    for (int slot = 0; slot < slots_; ++slot) {
      TANDEM_RETURN_IF_ERROR(client_->WaitApply(slot));
    }
    TANDEM_RETURN_IF_ERROR(client_->Commit(*digests_));
    outcome_->traffic = client_->traffic();
    return absl::OkStatus();
  }
  void AbortOnce() {
    if (std::exchange(aborted_, true)) return;
    const absl::Status aborted = client_->Abort(std::string(outcome_->status.message()));
    if (aborted.ok()) return;
    outcome_->status = Annotate(outcome_->status, fmt::format("(the rollout did not confirm the "
                                                              "abort: {})",
                                                              std::string(aborted.message())));
  }

  UpdateClient* const client_;
  ChainOutcome* const outcome_;                 // the thread's until it is joined
  std::optional<std::vector<Digest>> digests_;  // set before the queue is closed
  int slots_ = 0;                               // that were used
  bool aborted_ = false;
  BoundedQueue<FilledBucket> buckets_;
  NamedThread thread_;
};

ChainUpdateClient::ChainUpdateClient(std::vector<std::unique_ptr<UpdateClient>> rollouts)
    : rollouts_(std::move(rollouts)), outcomes_(rollouts_.size()) {}

ChainUpdateClient::~ChainUpdateClient() = default;

absl::StatusOr<int64_t> ChainUpdateClient::HeldVersion() {
  int64_t oldest = INT64_MAX;
  for (const auto& rollout : rollouts_) {
    // One that does not answer now is found when the update is opened.
    const absl::StatusOr<int64_t> held = rollout->HeldVersion();
    oldest = std::min(oldest, held.value_or(-1));
  }
  return oldest;
}

void ChainUpdateClient::OpenAll(const UpdateRequest& request) {
  StreamOffer next;
  int behind = 0;
  for (size_t i = rollouts_.size(); i-- > 0;) {
    UpdateRequest own = request;
    own.chain = {.from_rollout = i > 0, .next = next, .behind = behind};
    absl::StatusOr<StreamOffer> opened = rollouts_[i]->Open(own);
    outcomes_[i] = {.status = opened.status()};
    if (!opened.ok()) continue;
    if (behind++ > 0) {
      followers_.push_back(std::make_unique<Follower>(rollouts_[first_].get(), &outcomes_[first_]));
    }
    first_ = i;
    next = *std::move(opened);
  }
  offer_ = std::move(next);
}

absl::StatusOr<PeerConnection> ChainUpdateClient::Begin(const UpdateRequest& request,
                                                        const ProducerSlots& slots) {
  ended_ = false;
  followers_.clear();
  first_ = 0;
  OpenAll(request);
  TANDEM_RETURN_IF_ERROR(outcomes_[first_].status);  // of the first one, if all refuse
  absl::StatusOr<PeerConnection> connection = first().Connect(offer_, slots);
  outcomes_[first_].status = connection.status();
  return connection;
}

absl::Status ChainUpdateClient::StartApply(int slot, const std::vector<BucketEntry>& entries) {
  for (const auto& follower : followers_) follower->Apply(slot, entries);
  return outcomes_[first_].status = first().StartApply(slot, entries);
}

absl::Status ChainUpdateClient::WaitApply(int slot) {
  return outcomes_[first_].status = first().WaitApply(slot);
}

int64_t ChainUpdateClient::accepted() const {
  return std::count_if(outcomes_.begin(), outcomes_.end(),
                       [](const ChainOutcome& outcome) { return outcome.status.ok(); });
}

void ChainUpdateClient::JoinFollowers() {
  for (const auto& follower : followers_) follower->Join();
  followers_.clear();
  ended_ = true;
}

absl::Status ChainUpdateClient::Commit(const std::vector<Digest>& digests) {
  for (const auto& follower : followers_) follower->Commit(digests);
  ChainOutcome& own = outcomes_[first_];
  own.status = first().Commit(digests);
  if (own.status.ok()) {
    own.traffic = first().traffic();
  } else {
    (void)first().Abort(std::string(own.status.message()));
  }
  JoinFollowers();
  return accepted() > 0 ? absl::OkStatus() : own.status;
}

absl::Status ChainUpdateClient::Abort(const std::string& reason) {
  absl::Status confirmed;
  if (!ended_) {
    // The rollouts behind it learn of it by the ends of their connections.
    confirmed = first().Abort(reason);
    JoinFollowers();
    for (ChainOutcome& outcome : outcomes_) {
      if (outcome.status.ok()) outcome.status = absl::AbortedError(reason);
    }
  }
  return confirmed;
}

}  // namespace tandem
