#include "controller/workers/agents/agent_registry.h"

#include <algorithm>
#include <set>

#include "common/base/status.h"
#include "common/net/comer_build.h"
#include "common/process/exit_code.h"

namespace tandem {
namespace {

// Longer than an agent that was refused its place waits until it asks again.
constexpr absl::Duration kAskAgain = absl::Seconds(4);

std::string AgentText(const AgentNews& news) {
  return fmt::format("the agent of host {} on {}", news.host_index, news.host.Text());
}

bool HasProcess(const AgentNews& news, const WorkerKey& key, int64_t pid) {
  return std::any_of(
      news.processes.begin(), news.processes.end(),
      [&](const AgentProcess& process) { return process.key == key && process.pid == pid; });
}

std::vector<WorkerKey> RunningOf(const AgentNews& news) {
  std::vector<WorkerKey> running;
  for (const AgentProcess& process : news.processes) {
    if (process.pid != 0) running.push_back(process.key);
  }
  return running;
}

}  // namespace

std::string AgentEntry::Text() const { return AgentText(news); }

absl::StatusOr<AgentAnswer> AgentRegistry::Beat(const AgentNews& news) {
  const MutexLock lock(agents_mutex_);
  const absl::Status checked = Check(news);
  if (absl::IsAlreadyExists(checked)) asked_for_place_[news.host_index] = clock_.Now();
  TANDEM_RETURN_IF_ERROR(checked);
  if (news.leaving) {
    agents_.erase(news.host_index);
    left_[news.host_index] = {clock_.Now(), news.host};
    return AgentAnswer{};
  }
  left_.erase(news.host_index);
  AgentEntry& entry = agents_[news.host_index];
  const bool is_new = entry.news.boot_nonce != news.boot_nonce;
  if (is_new) entry = AgentEntry{};
  Assign(news, is_new);
  entry.news = news;
  entry.last_heartbeat = clock_.Now();
  entry.lost = false;
  std::erase_if(entry.kill, [&news](const AgentVictim& victim) {
    return !HasProcess(news, victim.key, victim.pid);
  });
  if (over_) entry.told_over = true;
  return AgentAnswer{.orders = OrdersFor(entry), .is_new = is_new};
}

absl::Status AgentRegistry::CheckBuild(const AgentNews& news) const {
  TANDEM_RETURN_IF_ERROR(CheckProtocol(AgentText(news), news.protocol));
  if (options_.allow_other_build) return absl::OkStatus();
  return CheckSameBuild(AgentText(news), {news.build, news.build_id},
                        {options_.build, options_.build_id});
}

absl::Status AgentRegistry::CheckHosts(const AgentNews& news) const {
  const Topology& topology = options_.topology;
  if (!topology.FitsHosts(news.hosts - options_.spare_hosts)) {
    const std::string spare =
        options_.spare_hosts == 0
            ? ""
            : fmt::format(", and {} spare (cluster.spare_hosts)", options_.spare_hosts);
    return FailedPrecondition(
        "{} is one of {} (--hosts), and the configuration puts {}: agents are for {} hosts{}; "
        "start them with that --hosts, or correct trainer.nnodes and rollout.nnodes",
        AgentText(news), news.hosts, topology.Text(), topology.FittingHosts(), spare);
  }
  if (news.host_index < 0 || news.host_index >= news.hosts) {
    return InvalidArgument("{} is out of range: of {} hosts the indices are 0 to {} (--host-index)",
                           AgentText(news), news.hosts, news.hosts - 1);
  }
  for (const auto& [index, entry] : agents_) {
    if (index == news.host_index || entry.lost) continue;
    if (entry.news.hosts != news.hosts) {
      return FailedPrecondition(
          "{} is one of {} hosts, and {} one of {}: start all agents with the same --hosts",
          AgentText(news), news.hosts, entry.Text(), entry.news.hosts);
    }
    if (SameHost(entry.news.host, news.host)) {
      return FailedPrecondition(
          "{} and {} are on one host: start one agent on each, or give them different --node",
          AgentText(news), entry.Text());
    }
  }
  return absl::OkStatus();
}

absl::Status AgentRegistry::Check(const AgentNews& news) const {
  TANDEM_RETURN_IF_ERROR(CheckBuild(news));
  TANDEM_RETURN_IF_ERROR(CheckHosts(news));
  const auto holder = agents_.find(news.host_index);
  const bool taken = holder != agents_.end() && !holder->second.lost &&
                     holder->second.news.boot_nonce != news.boot_nonce;
  if (!taken) return absl::OkStatus();
  return MakeStatus(
      absl::StatusCode::kAlreadyExists,
      "host {} has an agent, process {} on {}, which may still be alive (last message {} ago), so "
      "process {} on {} cannot take its place: stop that one first, or start this one with another "
      "--host-index",
      news.host_index, holder->second.news.pid, holder->second.news.host.Text(),
      absl::FormatDuration(
          absl::Trunc(clock_.Now() - holder->second.last_heartbeat, absl::Seconds(1))),
      news.pid, news.host.Text());
}

AgentOrders AgentRegistry::OrdersFor(const AgentEntry& entry) const {
  AgentOrders orders{.over = over_, .run_dir = options_.run_dir, .limits = options_.limits};
  if (over_) return orders;
  orders.kill = entry.kill;
  const auto add = [&](WorkerRole role, int rank, int device) {
    orders.processes.push_back({{role, rank}, fmt::format("{}:{}", options_.device, device)});
  };
  for (const AssignedShare& assigned : assignment_->SharesOf(entry.news.host_index)) {
    const HostShare& share = assigned.share;
    for (int i = 0; i < std::max(share.trainers.count, share.rollouts.count); ++i) {
      if (const int rank = share.trainers.first + i; i < share.trainers.count) {
        add(WorkerRole::kTrainer, rank, share.DeviceOfTrainer(rank));
      }
      if (const int rank = share.rollouts.first + i; i < share.rollouts.count) {
        add(WorkerRole::kRollout, rank, share.DeviceOfRollout(rank));
      }
    }
  }
  return orders;
}

bool AgentRegistry::OtherRuns(const AgentNews& news, const std::vector<WorkerKey>& workers) const {
  return std::any_of(agents_.begin(), agents_.end(), [&](const auto& agent) {
    if (agent.first == news.host_index || agent.second.lost) return false;
    const std::vector<WorkerKey> running = RunningOf(agent.second.news);
    return std::find_first_of(running.begin(), running.end(), workers.begin(), workers.end()) !=
           running.end();
  });
}

void AgentRegistry::Assign(const AgentNews& news, bool is_new) {
  const int hosts = news.hosts - options_.spare_hosts;
  if (!assignment_ || assignment_->hosts() != hosts) {
    assignment_.emplace(options_.topology, hosts, options_.min_rollouts, options_.double_up);
  }
  if (!options_.elastic || !is_new) return;
  // A controller that was started again learns from it what moved before.
  const std::vector<WorkerKey> running = RunningOf(news);
  if (!OtherRuns(news, running)) assignment_->Adopt(news.host_index, running);
}

bool AgentRegistry::IsHere(int index) const {
  const auto agent = agents_.find(index);
  return agent != agents_.end() && !agent->second.lost;
}

bool AgentRegistry::IsGone(int index) const {
  if (IsHere(index)) return false;
  // One on the same place waits for the end of that silence, and asks again in a moment.
  const auto asked = asked_for_place_.find(index);
  if (asked != asked_for_place_.end() && clock_.Now() - asked->second < kAskAgain) return false;
  const auto heard = Heard(index);
  if (!heard) return clock_.Now() - began_ >= options_.join_time;
  return clock_.Now() - heard->at >= options_.heartbeat_timeout;
}

std::optional<AgentRegistry::LastHeard> AgentRegistry::Heard(int index) const {
  if (const auto agent = agents_.find(index); agent != agents_.end()) {
    return LastHeard{agent->second.last_heartbeat, agent->second.news.host};
  }
  const auto left = left_.find(index);
  return left == left_.end() ? std::nullopt : std::optional(left->second);
}

std::string AgentRegistry::PlaceText(int index) const {
  const auto heard = Heard(index);
  return heard ? fmt::format("host {} on {}", index, heard->host.Text())
               : fmt::format("host {}", index);
}

MovedWorkers AgentRegistry::Moved(const HostMove& move) const {
  MovedWorkers moved{.workers = move.workers};
  if (move.to != HostAssignment::kNobody) moved.to = agents_.at(move.to).news.host;
  const std::string workers = move.WorkersText();
  if (move.from == HostAssignment::kNobody) {
    moved.text = fmt::format("{}, which no host ran, are for {} now", workers, PlaceText(move.to));
  } else if (!moved.to) {
    moved.text =
        fmt::format("{} is lost: the run goes on without {}, until there is a host for them",
                    PlaceText(move.from), workers);
  } else {
    moved.text = fmt::format("{} is lost: {} runs {}{}", PlaceText(move.from), PlaceText(move.to),
                             workers, move.doubled ? " beside its own, and is slower for it" : "");
  }
  return moved;
}

std::vector<MovedWorkers> AgentRegistry::MoveWorkers() {
  const MutexLock lock(agents_mutex_);
  if (!options_.elastic || !assignment_ || over_) return {};
  std::set<int> here, gone;
  for (int index = 0; index < assignment_->hosts() + options_.spare_hosts; ++index) {
    if (IsHere(index)) here.insert(index);
    if (IsGone(index)) gone.insert(index);
  }
  std::vector<MovedWorkers> moved;
  for (const HostMove& move : assignment_->Settle(here, gone)) moved.push_back(Moved(move));
  return moved;
}

std::vector<AgentEntry> AgentRegistry::DetectLost() {
  const MutexLock lock(agents_mutex_);
  std::vector<AgentEntry> lost;
  for (auto& [index, entry] : agents_) {
    if (entry.lost || clock_.Now() - entry.last_heartbeat < options_.heartbeat_timeout) continue;
    entry.lost = true;
    lost.push_back(entry);
  }
  return lost;
}

bool AgentRegistry::AskToKill(const HostId& host, const WorkerKey& key, int64_t pid) {
  const MutexLock lock(agents_mutex_);
  for (auto& [index, entry] : agents_) {
    if (entry.lost || !SameHost(entry.news.host, host) || !HasProcess(entry.news, key, pid)) {
      continue;
    }
    const AgentVictim victim{key, pid};
    if (std::find(entry.kill.begin(), entry.kill.end(), victim) == entry.kill.end()) {
      entry.kill.push_back(victim);
    }
    return true;
  }
  return false;
}

std::vector<AgentEntry> AgentRegistry::Agents() const {
  const MutexLock lock(agents_mutex_);
  std::vector<AgentEntry> agents;
  for (const auto& [index, entry] : agents_) agents.push_back(entry);
  return agents;
}

void AgentRegistry::EndRun() {
  const MutexLock lock(agents_mutex_);
  over_ = true;
}

bool AgentRegistry::AllToldOver() const {
  const MutexLock lock(agents_mutex_);
  return std::all_of(agents_.begin(), agents_.end(),
                     [](const auto& agent) { return agent.second.lost || agent.second.told_over; });
}

absl::Status FailureOf(const AgentNews& news) {
  const AgentFailure& failure = *news.failure;
  const std::string text =
      fmt::format("{} on {} (host {}) ends the run: {}{}", failure.key.Text(), news.host.Text(),
                  news.host_index, failure.reason,
                  failure.log.empty() ? "" : "; the last lines of its log there:\n" + failure.log);
  return failure.code == kExitRefused ? absl::InvalidArgumentError(text)
                                      : absl::InternalError(text);
}

}  // namespace tandem
