#include "controller/rollout_dispatcher.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace tandem {
namespace {

struct Event {
  size_t ticket = 0;  // which request
  std::optional<Sample> sample;
  absl::Status done;  // meaningful when there is no sample
};

// Filled by client threads, emptied by the dispatching one. Bounded by the samples in flight.
// Shared with the callbacks, which may come after the dispatch has ended.
class Inbox {
 public:
  void Push(Event event) {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_one();
  }
  // nullopt: nothing came within a tenth of a second.
  std::optional<Event> Pop() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(100), [this] { return !events_.empty(); });
    if (events_.empty()) return std::nullopt;
    std::optional<Event> event(std::move(events_.front()));
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
};

bool ReplicaIsGone(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsCancelled(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsFailedPrecondition(status);
}

// Also what a hanging replica's calls end with. Not the answers of one that lives.
bool MayBeKilled(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsDeadlineExceeded(status);
}

// Losses after which a group is generated alone, and alone before it is given up.
constexpr int kSuspect = 2;
constexpr int kGuilty = 2;

// One dispatch under way.
class Dispatching {
 public:
  Dispatching(std::vector<GroupRequest> groups,
              const std::vector<Replica>& replicas,
              const RolloutDispatcher::Options& options,
              const std::function<absl::Status(Sample)>& on_sample)
      : options_(options), on_sample_(on_sample) {
    for (GroupRequest& group : groups) Wait(std::move(group));
    Join(replicas);
  }

  absl::StatusOr<DispatchResult> Run() {
    while (true) {
      if (options_.returned && error_.ok()) JoinReturned();
      if (error_.ok()) Issue();
      if (flights_.empty()) break;
      if (options_.interrupted && options_.interrupted()) {
        Fail(absl::CancelledError("generation was interrupted"));
      }
      if (std::optional<Event> event = inbox_->Pop()) Handle(std::move(*event));
    }
    if (!result_.given_up.ok()) return std::move(result_);
    TANDEM_RETURN_IF_ERROR(error_);
    for (std::deque<GroupRequest>* left : {&bound_, &waiting_}) {
      std::move(left->begin(), left->end(), std::back_inserter(result_.rest));
    }
    return std::move(result_);
  }

 private:
  struct ReplicaState {
    Replica replica;
    int64_t samples = 0;  // in flight
    int flights = 0;
    bool taken = false;  // by a group that is generated alone
    bool gone = false;
  };
  struct Flight {
    GroupRequest group;  // sample_ids: those still missing
    size_t replica = 0;
  };

  void Join(const std::vector<Replica>& replicas) {
    for (const Replica& replica : replicas) replicas_.push_back({.replica = replica});
  }

  void JoinReturned() {
    absl::StatusOr<Joining> joining = options_.returned();
    if (!joining.ok()) return Fail(joining.status());
    Join(joining->replicas);
    for (GroupRequest& group : joining->groups) Wait(std::move(group));
  }

  void Wait(GroupRequest group) {
    (group.rank >= 0 ? bound_ : waiting_).push_back(std::move(group));
  }

  // Hands out groups that name their replica, and others while a replica has room.
  void Issue() {
    for (GroupRequest& group : std::exchange(bound_, {})) {
      const std::optional<size_t> index = IndexOf(group.rank);
      if (index) {
        Send(std::move(group), *index);
      } else {
        bound_.push_back(std::move(group));
      }
    }
    while (!waiting_.empty()) {
      const std::optional<size_t> index = LeastLoaded();
      if (!index) return;
      ReplicaState& state = replicas_[*index];
      const auto samples = static_cast<int64_t>(waiting_.front().sample_ids.size());
      const bool suspect = waiting_.front().losses >= kSuspect;
      if (state.flights > 0 &&
          (suspect || state.samples + samples > options_.max_in_flight_samples)) {
        return;
      }
      state.taken = suspect;
      GroupRequest group = std::move(waiting_.front());
      waiting_.pop_front();
      Send(std::move(group), *index);
    }
  }

  void Send(GroupRequest group, size_t index) {
    ReplicaState& state = replicas_[index];
    state.samples += std::ssize(group.sample_ids);
    ++state.flights;
    const size_t ticket = next_ticket_++;
    Flight& flight = flights_[ticket];
    flight = {.group = std::move(group), .replica = index};
    state.replica.client->Generate(
        flight.group,
        [inbox = inbox_, ticket](Sample sample) {
          inbox->Push({.ticket = ticket, .sample = std::move(sample)});
        },
        [inbox = inbox_, ticket](absl::Status status) {
          inbox->Push({.ticket = ticket, .done = std::move(status)});
        });
  }

  // The replica of a rank, unless it is gone or taken.
  std::optional<size_t> IndexOf(int rank) const {
    for (size_t i = 0; i < replicas_.size(); ++i) {
      const ReplicaState& state = replicas_[i];
      if (state.replica.rank == rank && !state.gone && !state.taken) return i;
    }
    return std::nullopt;
  }

  std::optional<size_t> LeastLoaded() const {
    std::optional<size_t> best;
    for (size_t i = 0; i < replicas_.size(); ++i) {
      if (replicas_[i].gone || replicas_[i].taken) continue;
      if (!best || replicas_[i].samples < replicas_[*best].samples) best = i;
    }
    return best;
  }

  void Handle(Event event) {
    const auto found = flights_.find(event.ticket);
    if (found == flights_.end()) return;
    if (event.sample) {
      TakeSample(found->second, std::move(*event.sample));
    } else {
      EndFlight(found, event.done);
    }
  }

  void TakeSample(Flight& flight, Sample sample) {
    std::vector<uint64_t>& missing = flight.group.sample_ids;
    const auto id = std::find(missing.begin(), missing.end(), sample.sample_id);
    if (sample.finish_reason == FinishReason::kAborted || id == missing.end()) return;
    missing.erase(id);
    --replicas_[flight.replica].samples;
    if (!error_.ok()) return;
    if (absl::Status status = on_sample_(std::move(sample)); !status.ok()) Fail(status);
  }

  void EndFlight(std::map<size_t, Flight>::iterator found, const absl::Status& status) {
    Flight flight = std::move(found->second);
    flights_.erase(found);
    ReplicaState& state = replicas_[flight.replica];
    state.samples -= static_cast<int64_t>(flight.group.sample_ids.size());
    const bool alone = --state.flights == 0 && !state.gone;
    state.taken = false;
    const int rank = state.replica.rank;
    if (!status.ok() && !ReplicaIsGone(status)) {
      Fail(Annotate(
          status, fmt::format("rollout {} could not generate group {}", rank, flight.group.group)));
      return;
    }
    if (flight.group.sample_ids.empty()) return;
    if (status.ok()) {
      // Aborted by somebody else: this replica is not to be relied on.
      spdlog::warn("rollout {} ended group {} with {} samples missing", rank, flight.group.group,
                   flight.group.sample_ids.size());
    }
    Lose(state, status);
    if (MayBeKilled(status) && error_.ok()) Suspect(flight.group, alone, rank);
    Wait(std::move(flight.group));
  }

  void Suspect(GroupRequest& group, bool alone, int rank) {
    ++group.losses;
    group.losses_alone += alone ? 1 : 0;
    if (group.losses_alone < kGuilty) return;
    result_.given_up = Internal(
        "group {} was given up: {} times a rollout, at last rollout {}, was lost while it made "
        "nothing else (a prompt of {} tokens, max_tokens={}); its log says why",
        group.group, group.losses_alone, rank, group.prompt.size(), group.params.max_tokens);
    Fail(result_.given_up);
  }

  void Lose(ReplicaState& state, const absl::Status& status) {
    if (state.gone) return;
    state.gone = true;
    result_.lost_ranks.push_back(state.replica.rank);
    if (!error_.ok()) return;
    spdlog::warn("rollout {} is lost ({}); its groups go to others", state.replica.rank,
                 std::string(status.message()));
    state.replica.client->CancelAll();
    if (options_.on_lost) options_.on_lost(state.replica);
  }

  void Fail(const absl::Status& status) {
    if (!error_.ok()) return;
    error_ = status;
    for (const ReplicaState& state : replicas_) state.replica.client->CancelAll();
  }

  const RolloutDispatcher::Options& options_;
  std::deque<GroupRequest> waiting_;
  std::deque<GroupRequest> bound_;  // to a replica that is gone or taken
  const std::function<absl::Status(Sample)>& on_sample_;
  std::vector<ReplicaState> replicas_;
  std::map<size_t, Flight> flights_;  // by ticket
  size_t next_ticket_ = 0;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  absl::Status error_;
  DispatchResult result_;
};

}  // namespace

absl::StatusOr<DispatchResult> RolloutDispatcher::Dispatch(
    std::vector<GroupRequest> groups,
    const std::vector<Replica>& replicas,
    const std::function<absl::Status(Sample)>& on_sample) {
  Dispatching dispatching(std::move(groups), replicas, options_, on_sample);
  return dispatching.Run();
}

}  // namespace tandem
