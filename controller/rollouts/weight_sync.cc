#include "controller/rollouts/weight_sync.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "controller/workers/trainer_calls.h"

namespace tandem {
namespace {

// What rollouts that are woken at the same time answer.
class WakeReports {
 public:
  // This object must live until `done` is called.
  void Wake(RolloutClient& client, int rank, const std::string& tag, StatusDone done) {
    const auto keep = [this, rank](PhaseReport report) {
      const MutexLock lock(reports_mutex_);
      reports_[rank] = std::move(report);
    };
    client.Wake({tag}, Keeping<PhaseReport>(keep, std::move(done)));
  }
  std::map<int, PhaseReport> Take() {
    const MutexLock lock(reports_mutex_);
    return std::exchange(reports_, {});
  }

 private:
  Mutex reports_mutex_;
  std::map<int, PhaseReport> reports_ ABSL_GUARDED_BY(reports_mutex_);  // by rank
};

}  // namespace

std::vector<int> WeightSync::Behind(int64_t version) {
  std::vector<int> ranks;
  for (const int rank : pool_.active_rollouts().Ranks()) {
    const auto client = pool_.rollout(rank);
    const Held& held = serving_[rank];
    if (!client.ok() || (*client)->incarnation() != held.incarnation || held.version != version) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

void WeightSync::Forget() {
  serving_.clear();
  synced_not_awake_.clear();
  checked_incarnation_.clear();
  newest_served_version_.clear();
}

bool WeightSync::CheckDue(int64_t version, const Targets& targets) const {
  using When = CheckPolicy::When;
  if (check_.when == When::kOff) return false;
  if (check_.when == When::kAlways) return true;
  if (check_.when == When::kEvery && version % check_.every == 0) return true;
  return std::any_of(targets.begin(), targets.end(), [this](const auto& target) {
    const auto checked = checked_incarnation_.find(target.first);
    return checked == checked_incarnation_.end() || checked->second != target.second->incarnation();
  });
}

void WeightSync::Forget(const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    serving_.erase(rank);
    synced_not_awake_.erase(rank);
  }
}

absl::Status WeightSync::EndStaleUpdates() {
  return AllAnswered(
      CallRollouts(pool_, AllRanks(pool_), [](RolloutClient& client, int, StatusDone done) {
        client.AbortUpdate("the trainers start again from a checkpoint", std::move(done));
      }));
}

void WeightSync::AbortUpdates(const std::vector<int>& ranks) {
  // A rollout that hangs is not waited for: the trainers' own deadline ends its update.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  const absl::Status status = AllAnswered(CallRollouts(
      pool_, ranks,
      [](RolloutClient& client, int, StatusDone done) {
        client.AbortUpdate("the run was interrupted", std::move(done));
      },
      [deadline] { return std::chrono::steady_clock::now() > deadline; }));
  if (status.ok()) return;
  LogWarn("could not abort the open weight updates: {}", std::string(status.message()));
}

SyncTarget WeightSync::TargetOf(const SyncRoute& route, const Targets& targets) const {
  const RolloutClient& client = *targets.at(route.rollout);
  const auto synced = synced_incarnation_.find(route.rollout);
  const bool first = synced == synced_incarnation_.end() || synced->second != client.incarnation();
  return {.address = client.address(),
          .incarnation = client.incarnation(),
          .scramble =
              scramble_ == ScrambleMode::kAlways || (scramble_ == ScrambleMode::kFirst && first),
          .over_tcp = over_tcp_ && over_tcp_(route)};
}

SyncCall WeightSync::CallFor(int trainer,
                             int64_t version,
                             const SyncRound& round,
                             const Targets& targets) const {
  SyncCall command{.version = version};
  for (const auto& [sender, rollouts] : round) command.senders.push_back(sender);
  const auto own = round.find(trainer);
  if (own == round.end()) return command;
  for (const int rollout : own->second) {
    command.targets.push_back(TargetOf({.trainer = trainer, .rollout = rollout}, targets));
  }
  return command;
}

absl::StatusOr<std::vector<SyncReply>> WeightSync::SendRound(int64_t version,
                                                             const SyncRound& round,
                                                             const Targets& targets,
                                                             const Interrupted& interrupted) {
  const auto send = [&](TrainerClient& trainer, int rank, Done<SyncReply> done) {
    trainer.SyncWeights(CallFor(rank, version, round, targets), std::move(done));
  };
  TrainerCallOptions how{.interrupted = interrupted};
  for (const auto& [trainer, rollouts] : round) how.rollouts[trainer] = rollouts.front();
  auto sent = CallAllTrainers<SyncReply>(pool_, send, how);
  if (absl::IsDataLoss(sent.status())) {
    // A digest differed, and the rollout is empty now. One failure may be chance, a second one is a
    // fault.
    LogError("{}; publishing once more", std::string(sent.status().message()));
    sent = CallAllTrainers<SyncReply>(pool_, send, how);
  }
  return sent;
}

absl::StatusOr<WeightSync::Missed> WeightSync::SendRounds(int64_t version,
                                                          const std::vector<int>& receivers,
                                                          const Targets& targets,
                                                          const Interrupted& interrupted,
                                                          WeightSyncResult* result) {
  Missed missed;
  for (const SyncRound& round : fan_out_->Rounds(routes_, receivers)) {
    const auto replies = SendRound(version, round, targets, interrupted);
    if (absl::IsCancelled(replies.status()) && interrupted && interrupted()) {
      AbortUpdates(receivers);
    }
    TANDEM_RETURN_IF_ERROR(replies.status());
    RoundReports& reports = result->rounds.emplace_back();
    for (const SyncReply& reply : *replies) {
      result->changed_share = std::max(result->changed_share, reply.changed_share);
      if (result->digest.empty()) result->digest = reply.digest;
      result->sent_bytes += reply.sent_bytes;
      reports.push_back(reply.report);
    }
    for (const auto& [trainer, rollouts] : round) {
      const SyncReply& reply = (*replies)[static_cast<size_t>(trainer)];
      for (size_t i = 0; i < rollouts.size(); ++i) {
        const SyncOutcome outcome = i < reply.outcomes.size() ? reply.outcomes[i] : SyncOutcome();
        result->received_bytes += outcome.received_bytes;
        result->forwarded_bytes += outcome.forwarded_bytes;
        if (outcome.status.ok()) {
          result->sent[rollouts[i]] = reply;
        } else {
          missed[rollouts[i]] = Blame(trainer, rollouts[i], outcome.status);
        }
      }
    }
  }
  return missed;
}

absl::Status WeightSync::Blame(int trainer, int rollout, const absl::Status& status) {
  if (OriginOf(status) == FailureOrigin::kPartner) {
    return AttributeFailure(pool_, trainer, 0, rollout, status);
  }
  return Annotate(status, fmt::format("rollout {} (reported by trainer {})", rollout, trainer));
}

absl::Status WeightSync::Send(int64_t version,
                              const Targets& targets,
                              const Interrupted& interrupted,
                              WeightSyncResult* result) {
  std::vector<int> receivers;
  for (const auto& [rank, client] : targets) receivers.push_back(rank);
  TANDEM_ASSIGN_OR_RETURN(const Missed missed,
                          SendRounds(version, receivers, targets, interrupted, result));
  if (missed.empty()) return absl::OkStatus();
  // One that did not answer is lost: the sync is repeated when it is back.
  for (const auto& [rank, why] : missed) {
    if (OriginOf(why) == FailureOrigin::kPartner) return why;
  }
  std::vector<int> again;
  for (const auto& [rank, why] : missed) {
    LogError("{}; publishing once more", std::string(why.message()));
    again.push_back(rank);
  }
  TANDEM_ASSIGN_OR_RETURN(const Missed missed_again,
                          SendRounds(version, again, targets, interrupted, result));
  return missed_again.empty() ? absl::OkStatus() : missed_again.begin()->second;
}

void WeightSync::NoteSyncs(int64_t version, const WeightSyncResult& result) {
  const int64_t now_us = absl::ToUnixMicros(pool_.clock().WallNow());
  for (const auto& [rank, sent] : result.sent) {
    syncs_.push_back({.time_us = now_us,
                      .version = version,
                      .rank = rank,
                      .bytes = sent.bytes,
                      .seconds = sent.seconds,
                      .digest = result.digest});
  }
}

absl::StatusOr<WeightSyncResult> WeightSync::Sync(
    int64_t version,
    const std::string& reference_dir,
    const Interrupted& interrupted,
    const std::function<void(const WeightSyncResult&)>& before_check) {
  for (const int rank : pool_.active_rollouts().TakeIn(
           [this](int left_out) { return pool_.rollout(left_out).ok(); })) {
    LogInfo("rollout {} takes part again", rank);
  }
  WeightSyncResult result{.ranks = Behind(version)};
  if (result.ranks.empty()) return result;
  for (const int rank : result.ranks) serving_.erase(rank);
  synced_not_awake_.clear();
  WakeReports wakes;
  const auto wake = [&](RolloutClient& client, int rank, StatusDone done) {
    wakes.Wake(client, rank, "weights", std::move(done));
  };
  Targets targets;
  const auto woken = CallRollouts(pool_, result.ranks, wake, interrupted);
  TANDEM_RETURN_IF_ERROR(AllAnswered(woken));
  result.wakes = wakes.Take();
  for (const RolloutAnswer& answer : woken) targets[answer.rank] = answer.client;

  TANDEM_RETURN_IF_ERROR(Send(version, targets, interrupted, &result));
  for (const auto& [rank, client] : targets) synced_incarnation_[rank] = client->incarnation();
  LogInfo("version {}: weights published, digest {}", version, result.digest);
  NoteSyncs(version, result);

  if (CheckDue(version, targets)) {
    if (before_check) before_check(result);
    // Only the rollouts that received weights: the others continue to generate, or sleep.
    TANDEM_ASSIGN_OR_RETURN(Checked checks, CheckOn(result.ranks, reference_dir, interrupted));
    const std::string reference = check_files_->Describe(reference_dir);
    for (const auto& [rank, found] : checks.results) {
      TANDEM_RETURN_IF_ERROR(VerdictOn(rank, found, reference));
    }
    result.checked = fmt::format("weight check: {} tensors equal on each of {} rollouts ({})",
                                 checks.results.begin()->second.checked, result.ranks.size(),
                                 reference_dir.empty() ? "against " + reference : reference);
    result.checks = std::move(checks.rounds);
    for (const auto& [rank, client] : targets) checked_incarnation_[rank] = client->incarnation();
    const auto sent = static_cast<std::ptrdiff_t>(result.ranks.size());
    for (auto sync = syncs_.end() - sent; sync != syncs_.end(); ++sync) sync->checked = true;
  }
  for (const auto& [rank, client] : targets)
    synced_not_awake_[rank] = {client->incarnation(), version};
  return result;
}

absl::StatusOr<std::map<int, PhaseReport>> WeightSync::Wake(const Interrupted& interrupted) {
  WakeReports wakes;
  const auto wake = [&](RolloutClient& client, int rank, StatusDone done) {
    wakes.Wake(client, rank, "kv_cache", std::move(done));
  };
  const std::map<int, Held> pending = std::exchange(synced_not_awake_, {});
  std::vector<int> ranks;
  for (const auto& [rank, held] : pending) ranks.push_back(rank);
  const auto answers = CallRollouts(pool_, ranks, wake, interrupted);
  for (const RolloutAnswer& answer : answers) {
    if (!answer.status.ok()) continue;
    const Held& held = serving_[answer.rank] = pending.at(answer.rank);
    const auto [sent, first] = newest_served_version_.try_emplace(answer.rank, held.version);
    if (!first && sent->second == held.version) ++resent_;
    sent->second = held.version;
  }
  TANDEM_RETURN_IF_ERROR(AllAnswered(answers));
  return wakes.Take();
}

absl::StatusOr<WeightChecks> WeightSync::Check(const std::string& reference_dir) {
  TANDEM_ASSIGN_OR_RETURN(Checked checked, CheckOn(AllRanks(pool_), reference_dir));
  return std::move(checked.results);
}

absl::StatusOr<WeightSync::Checked> WeightSync::CheckOn(const std::vector<int>& ranks,
                                                        const std::string& reference_dir,
                                                        const Interrupted& interrupted) {
  TANDEM_RETURN_IF_ERROR(check_files_->Check(reference_dir));
  // A missing rollout must not fail its trainer's call: a trainer that gets no address takes part
  // in the gather and asks no rollout.
  Targets targets;
  for (const int rank : ranks) {
    TANDEM_ASSIGN_OR_RETURN(targets[rank], pool_.rollout(rank));
  }
  Checked checked;
  for (const RolloutOfTrainer& round : routes_.Rounds(ranks)) {
    const auto check = [&](TrainerClient& trainer, int rank, Done<WeightCheckResult> done) {
      CheckCall command{.hf_checkpoint = reference_dir};
      if (const auto own = round.find(rank); own != round.end()) {
        command.rollout_address = targets.at(own->second)->address();
        // A process that has taken its place since has no weights, and answers that it is another.
        command.rollout_incarnation = synced_incarnation_[own->second];
      }
      trainer.CheckWeights(command, std::move(done));
    };
    TANDEM_ASSIGN_OR_RETURN(auto results,
                            CallAllTrainers<WeightCheckResult>(
                                pool_, check, {.interrupted = interrupted, .rollouts = round}));
    RoundReports& reports = checked.rounds.emplace_back();
    for (const WeightCheckResult& result : results) reports.push_back(result.report);
    for (const auto& [trainer, rollout] : round) {
      checked.results[rollout] = std::move(results[static_cast<size_t>(trainer)]);
    }
  }
  return checked;
}

std::string CheckText(int rank, const WeightCheckResult& result) {
  std::string text = fmt::format(
      "rollout {}, version {}: {} of {} tensors checked, {} missing, {} unexpected, {} mismatched",
      rank, result.version, result.checked, result.expected, result.missing, result.unexpected,
      result.mismatched);
  if (!result.first_difference.empty()) text += "; first: " + result.first_difference;
  return text;
}

absl::Status VerdictOn(int rank, const WeightCheckResult& result, const std::string& reference) {
  if (result.ok()) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kDataLoss,
                    "rollout {} does not hold the weights it should (compared with {}): {}", rank,
                    reference, CheckText(rank, result));
}

absl::Status Verdict(const WeightChecks& results, const std::string& reference) {
  for (const auto& [rank, result] : results) {
    TANDEM_RETURN_IF_ERROR(VerdictOn(rank, result, reference));
  }
  return absl::OkStatus();
}

}  // namespace tandem
