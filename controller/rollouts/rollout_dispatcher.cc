#include "controller/rollouts/rollout_dispatcher.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "controller/rollouts/sample_check.h"
#include "controller/workers/running_calls.h"

namespace tandem {
namespace {

// Upper bound of a message's bytes besides its arrays and texts: tags, lengths and plain numbers.
constexpr int64_t kAroundRequest = 512;
constexpr int64_t kAroundSample = 64;

// Bytes of an integer in protobuf's encoding, 7 bits per byte.
int64_t VarintBytes(uint64_t value) {
  int64_t bytes = 1;
  for (; value >= 128; value >>= 7) ++bytes;
  return bytes;
}

template <typename T>
int64_t VarintBytes(const std::vector<T>& values) {
  int64_t bytes = 0;
  for (const T value : values) bytes += VarintBytes(static_cast<uint64_t>(int64_t{value}));
  return bytes;
}

int64_t BytesOf(const Continuation& continuation) {
  return kAroundSample + VarintBytes(continuation.tokens) + VarintBytes(continuation.versions) +
         static_cast<int64_t>(continuation.log_probs.size() * sizeof(float));
}

int64_t BytesOfAllSamples(const GroupRequest& group) {
  int64_t bytes = kAroundRequest + std::ssize(group.request_id) + VarintBytes(group.prompt);
  for (const std::string& stop : group.params.stop) bytes += kAroundSample + std::ssize(stop);
  return bytes + 10 * std::ssize(group.params.stop_token_ids);
}

}  // namespace

absl::StatusOr<std::vector<GroupRequest>> SplitRequest(GroupRequest group, int64_t max_bytes) {
  std::vector<GroupRequest> parts;
  if (group.continued.empty()) {
    parts.push_back(std::move(group));
    return parts;
  }
  const std::vector<uint64_t> sample_ids = std::exchange(group.sample_ids, {});
  std::vector<Continuation> continued = std::exchange(group.continued, {});
  const int64_t start = BytesOfAllSamples(group);
  int64_t bytes = start;
  parts.push_back(group);
  for (size_t i = 0; i < continued.size(); ++i) {
    const int64_t more = BytesOf(continued[i]);
    if (start + more > max_bytes) {
      return InvalidArgument(
          "sample {} continues from {} tokens after a prompt of {}: that is a request of {} bytes, "
          "and {} are allowed; lower data.max_response_length, or restart the sample",
          sample_ids[i], continued[i].tokens.size(), group.prompt.size(), start + more, max_bytes);
    }
    if (bytes + more > max_bytes) {
      parts.push_back(group);
      bytes = start;
    }
    bytes += more;
    parts.back().sample_ids.push_back(sample_ids[i]);
    parts.back().continued.push_back(std::move(continued[i]));
  }
  return parts;
}

void AbortRequests(const std::vector<RequestsToAbort>& wanted) {
  const auto running = std::make_shared<RunningCalls>(wanted.size());
  for (const RequestsToAbort& of_rollout : wanted) {
    // A request without ids would abort every request of the rollout.
    TANDEM_CHECK(!of_rollout.request_ids.empty(), "there must be a request to abort");
    of_rollout.client->Abort(of_rollout.request_ids,
                             [running, rank = of_rollout.rank,
                              requests = of_rollout.request_ids.size()](absl::Status status) {
                               if (!status.ok()) {
                                 LogWarn("rollout {} could not abort {} requests: {}", rank,
                                         requests, std::string(status.message()));
                               }
                               running->End();
                             });
  }
  running->WaitForAll();
}

namespace {

struct Event {
  size_t ticket = 0;  // the request that it belongs to
  std::optional<Sample> sample;
  absl::Status done;  // meaningful when there is no sample
};

// Events of all requests: client threads push them and the thread of Dispatch pops them. Holds at
// most the samples in flight. Shared with the callbacks, which may run after the dispatch has
// ended.
class Inbox {
 public:
  void Push(Event event) {
    const MutexLock lock(events_mutex_);
    events_.push_back(std::move(event));
    arrived_.NotifyOne();
  }
  // nullopt: no event arrived within 100 ms.
  std::optional<Event> Pop() {
    NoteProgress();  // a replica that does not answer is watched by its calls
    const MutexLock lock(events_mutex_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (events_.empty() && arrived_.WaitUntil(events_mutex_, deadline)) {
    }
    if (events_.empty()) return std::nullopt;
    std::optional<Event> event(std::move(events_.front()));
    events_.pop_front();
    return event;
  }

 private:
  Mutex events_mutex_;
  ConditionVariable arrived_;
  std::deque<Event> events_ ABSL_GUARDED_BY(events_mutex_);
};

bool ReplicaIsGone(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsCancelled(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsFailedPrecondition(status);
}

// Whether the replica's process may have crashed or hung: a status that no living replica answers
// with.
bool MayHaveCrashed(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsDeadlineExceeded(status);
}

// A group that was in flight in two replica crashes is generated alone; if it then takes down two
// more replicas, the dispatch abandons it.
constexpr int kCrashesBeforeIsolation = 2;
constexpr int kIsolatedCrashesBeforeDrop = 2;

// Requests that should have ended are aborted again after this time, even while other events
// arrive.
constexpr absl::Duration kAbortRepeat = absl::Seconds(1);

// Aborts name request ids, so an interruptible group may not share its id with one that is not.
absl::Status CheckRequestIds(const std::vector<GroupRequest>& groups) {
  std::set<std::string> uninterruptible;
  for (const GroupRequest& group : groups) {
    if (!group.interruptible) uninterruptible.insert(group.request_id);
  }
  for (const GroupRequest& group : groups) {
    if (!group.interruptible ||
        (!group.request_id.empty() && !uninterruptible.contains(group.request_id))) {
      continue;
    }
    return InvalidArgument(
        "group {} is interruptible, but its request id '{}' is {}: give it one of its own",
        group.group, group.request_id,
        group.request_id.empty() ? "empty" : "that of a group that is not");
  }
  return absl::OkStatus();
}

// A dispatch in progress.
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
      if (options_.rejoined && error_.ok()) AddRejoined();
      if (error_.ok()) PollEndOfRound();
      if (error_.ok()) Issue();
      if (flights_.empty()) break;
      if (options_.interrupted && options_.interrupted()) {
        Fail(absl::CancelledError("generation was interrupted"));
      }
      std::optional<Event> event = inbox_->Pop();
      const bool quiet = !event;
      if (event) Handle(*std::move(event));
      // An abort may have reached the rollout before its request.
      const bool late = options_.clock->Now() - aborted_at_ >= kAbortRepeat;
      if (round_ended_ && error_.ok() && (quiet || late)) AbortFlights();
    }
    if (!result_.abandoned.ok()) return std::move(result_);
    TANDEM_RETURN_IF_ERROR(error_);
    for (std::deque<GroupRequest>* left : {&bound_, &waiting_}) {
      std::move(left->begin(), left->end(), std::back_inserter(result_.unfinished));
    }
    return std::move(result_);
  }

 private:
  struct ReplicaState {
    Replica replica;
    int64_t samples = 0;  // in flight
    int flights = 0;
    bool isolated = false;  // generates one suspected group alone
    bool gone = false;
  };
  struct Flight {
    GroupRequest group;  // with the sample_ids and continuations that are still missing
    size_t replica = 0;
  };

  void Join(const std::vector<Replica>& replicas) {
    for (const Replica& replica : replicas) replicas_.push_back({.replica = replica});
  }

  void AddRejoined() {
    absl::StatusOr<JoiningReplicas> joining = options_.rejoined();
    if (!joining.ok()) return Fail(joining.status());
    Join(joining->replicas);
    for (GroupRequest& group : joining->groups) Wait(std::move(group));
  }

  void Wait(GroupRequest group) {
    (group.rank >= 0 ? bound_ : waiting_).push_back(std::move(group));
  }

  void PollEndOfRound() {
    const bool begins = !round_ended_ && options_.end_round && options_.end_round();
    round_ended_ = round_ended_ || begins;
    if (!round_ended_) return;
    // Includes groups that a lost replica left unfinished.
    for (std::deque<GroupRequest>* left : {&bound_, &waiting_}) {
      std::erase_if(*left, [](const GroupRequest& group) { return group.interruptible; });
    }
    if (begins) AbortFlights();
  }

  // Aborts all interruptible requests in flight, at every replica at once. Run calls it again until
  // they have ended; the requests of a replica that is gone end by themselves.
  void AbortFlights() {
    std::map<size_t, std::set<std::string>> ids;  // by replica
    for (const auto& [ticket, flight] : flights_) {
      if (!flight.group.interruptible || replicas_[flight.replica].gone) continue;
      ids[flight.replica].insert(flight.group.request_id);
    }
    std::vector<RequestsToAbort> wanted;
    for (const auto& [index, of_replica] : ids) {
      wanted.push_back({.client = replicas_[index].replica.client,
                        .rank = replicas_[index].replica.rank,
                        .request_ids = {of_replica.begin(), of_replica.end()}});
    }
    AbortRequests(wanted);
    aborted_at_ = options_.clock->Now();
  }

  // Sends the groups that name their replica, and others while a replica has room.
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
      const bool suspect = waiting_.front().losses >= kCrashesBeforeIsolation;
      if (state.flights > 0 &&
          (suspect || state.samples + samples > options_.max_in_flight_samples)) {
        return;
      }
      state.isolated = suspect;
      GroupRequest group = std::move(waiting_.front());
      waiting_.pop_front();
      Send(std::move(group), *index);
    }
  }

  // Sends a group in as many requests as its message needs.
  void Send(GroupRequest group, size_t index) {
    if (!error_.ok()) return;
    const std::string name = fmt::format("group {}", group.group);
    if (group.load_continued) {
      auto loaded = group.load_continued(group.sample_ids);
      if (!loaded.ok()) return Fail(Annotate(loaded.status(), name));
      if (loaded->size() != group.sample_ids.size()) {
        return Fail(Internal("{}: {} continuations were loaded for {} samples", name,
                             loaded->size(), group.sample_ids.size()));
      }
      group.continued = *std::move(loaded);
    }
    auto parts = SplitRequest(std::move(group), options_.max_request_bytes);
    if (!parts.ok()) return Fail(Annotate(parts.status(), name));
    for (GroupRequest& part : *parts) Start(std::move(part), index);
  }

  void Start(GroupRequest group, size_t index) {
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
    if (flight.group.load_continued) flight.group.continued = {};
  }

  // The replica of a rank, unless it is gone or isolated.
  std::optional<size_t> IndexOf(int rank) const {
    for (size_t i = 0; i < replicas_.size(); ++i) {
      const ReplicaState& state = replicas_[i];
      if (state.replica.rank == rank && !state.gone && !state.isolated) return i;
    }
    return std::nullopt;
  }

  std::optional<size_t> LeastLoaded() const {
    std::optional<size_t> best;
    for (size_t i = 0; i < replicas_.size(); ++i) {
      if (replicas_[i].gone || replicas_[i].isolated) continue;
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
    const bool ended = sample.finish_reason != FinishReason::kAborted;
    if (!ended && !IsInterrupted(flight.group)) return;
    const int rank = replicas_[flight.replica].replica.rank;
    if (id == missing.end()) {
      return Fail(MakeStatus(absl::StatusCode::kDataLoss,
                             "rollout {} sent sample {:#x}, which was not asked for or came twice, "
                             "in answer to group {}",
                             rank, sample.sample_id, flight.group.group));
    }
    if (absl::Status fits = CheckAnswer(flight.group, sample, options_.vocab_limit); !fits.ok()) {
      return Fail(Annotate(fits, fmt::format("rollout {}", rank)));
    }
    std::vector<Continuation>& continued = flight.group.continued;
    if (!continued.empty()) continued.erase(continued.begin() + (id - missing.begin()));
    missing.erase(id);
    --replicas_[flight.replica].samples;
    if (!error_.ok()) return;
    if (absl::Status status = on_sample_(std::move(sample)); !status.ok()) Fail(status);
  }

  bool IsInterrupted(const GroupRequest& group) const {
    return round_ended_ && group.interruptible;
  }

  void EndFlight(std::map<size_t, Flight>::iterator found, const absl::Status& status) {
    Flight flight = std::move(found->second);
    flights_.erase(found);
    ReplicaState& state = replicas_[flight.replica];
    state.samples -= static_cast<int64_t>(flight.group.sample_ids.size());
    const bool alone = --state.flights == 0 && !state.gone;
    state.isolated = false;
    const int rank = state.replica.rank;
    if (!status.ok() && !ReplicaIsGone(status)) {
      Fail(Annotate(
          status, fmt::format("rollout {} could not generate group {}", rank, flight.group.group)));
      return;
    }
    if (flight.group.sample_ids.empty() || !error_.ok()) return;
    if (status.ok()) {
      // The stream ended without error and without all samples: treat the replica as failed.
      LogWarn("rollout {} ended group {} with {} samples missing", rank, flight.group.group,
              flight.group.sample_ids.size());
    }
    Lose(state, status);
    if (IsInterrupted(flight.group)) return;  // its missing samples are unchanged
    if (MayHaveCrashed(status) && error_.ok()) Suspect(flight.group, alone, rank);
    Wait(std::move(flight.group));
  }

  void Suspect(GroupRequest& group, bool alone, int rank) {
    ++group.losses;
    group.losses_alone += alone ? 1 : 0;
    if (group.losses_alone < kIsolatedCrashesBeforeDrop) return;
    result_.abandoned = Internal(
        "group {} was abandoned: {} times a rollout, at last rollout {}, was lost while it "
        "generated nothing else (a prompt of {} tokens, max_tokens={}); its log says why",
        group.group, group.losses_alone, rank, group.prompt.size(), group.params.max_tokens);
    Fail(result_.abandoned);
  }

  void Lose(ReplicaState& state, const absl::Status& status) {
    if (state.gone) return;
    state.gone = true;
    result_.lost_ranks.push_back(state.replica.rank);
    if (!error_.ok()) return;
    LogWarn("rollout {} is lost ({}); its groups go to others", state.replica.rank,
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
  bool round_ended_ = false;
  Instant aborted_at_ = Instant::InfinitePast();
  absl::Status error_;
  DispatchResult result_;
};

}  // namespace

absl::StatusOr<DispatchResult> RolloutDispatcher::Dispatch(
    std::vector<GroupRequest> groups,
    const std::vector<Replica>& replicas,
    const std::function<absl::Status(Sample)>& on_sample) {
  if (options_.end_round) TANDEM_RETURN_IF_ERROR(CheckRequestIds(groups));
  Dispatching dispatching(std::move(groups), replicas, options_, on_sample);
  return dispatching.Run();
}

}  // namespace tandem
