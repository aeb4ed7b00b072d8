#include "controller/workers/agents/host_assignment.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tandem {
namespace {

void Append(WorkerRole role, const RankRange& ranks, std::vector<WorkerKey>* workers) {
  for (int i = 0; i < ranks.count; ++i) workers->push_back({role, ranks.first + i});
}

bool AnyIn(WorkerRole role, const RankRange& ranks, const std::vector<WorkerKey>& workers) {
  return std::any_of(workers.begin(), workers.end(), [&](const WorkerKey& worker) {
    return worker.role == role && worker.rank >= ranks.first &&
           worker.rank < ranks.first + ranks.count;
  });
}

std::string RanksText(WorkerRole role, const std::vector<WorkerKey>& workers) {
  std::vector<int> ranks;
  for (const WorkerKey& worker : workers) {
    if (worker.role == role) ranks.push_back(worker.rank);
  }
  if (ranks.empty()) return "";
  if (ranks.size() == 1) return fmt::format("{} {}", RoleName(role), ranks.front());
  return fmt::format("{}s {} to {}", RoleName(role), ranks.front(), ranks.back());
}

}  // namespace

std::string HostMove::WorkersText() const {
  std::vector<std::string> texts = {RanksText(WorkerRole::kTrainer, workers),
                                    RanksText(WorkerRole::kRollout, workers)};
  std::erase(texts, "");
  return fmt::format("{}", fmt::join(texts, " and "));
}

HostAssignment::HostAssignment(const Topology& topology,
                               int hosts,
                               int min_rollouts,
                               bool double_up)
    : apart_(topology.apart), min_rollouts_(min_rollouts), double_up_(double_up) {
  for (int host = 0; host < hosts; ++host) {
    const HostShare share = topology.ShareOf(host, hosts);
    hosts_.push_back({.share = share,
                      .trainers_agent = share.trainers.count > 0 ? host : kNobody,
                      .rollouts_agent = share.rollouts.count > 0 ? host : kNobody});
  }
}

std::vector<AssignedShare> HostAssignment::SharesOf(int agent) const {
  std::vector<AssignedShare> shares;
  for (int host = 0; host < hosts(); ++host) {
    const Host& of_plan = hosts_[static_cast<size_t>(host)];
    AssignedShare assigned{.host = host, .share = of_plan.share};
    if (of_plan.trainers_agent != agent) assigned.share.trainers = {};
    if (of_plan.rollouts_agent != agent) assigned.share.rollouts = {};
    if (assigned.share.trainers.count + assigned.share.rollouts.count > 0) {
      shares.push_back(assigned);
    }
  }
  return shares;
}

bool HostAssignment::RunsNothing(int agent) const {
  return std::none_of(hosts_.begin(), hosts_.end(), [agent](const Host& host) {
    return host.trainers_agent == agent || host.rollouts_agent == agent;
  });
}

int HostAssignment::FindSpare(const std::set<int>& here) const {
  const auto spare =
      std::find_if(here.begin(), here.end(), [this](int agent) { return RunsNothing(agent); });
  return spare == here.end() ? kNobody : *spare;
}

int HostAssignment::FindNeighbour(int host,
                                  const std::set<int>& here,
                                  const std::set<int>& gone) const {
  bool lower = true, upper = true;  // nobody but agents that are gone was met on that side
  bool awaited = false;
  for (int distance = 1; distance < hosts(); ++distance) {
    for (const auto& [other, open] :
         {std::pair{host - distance, &lower}, std::pair{host + distance, &upper}}) {
      if (!*open || other < 0 || other >= hosts()) continue;
      const int agent = hosts_[static_cast<size_t>(other)].trainers_agent;
      if (agent == kNobody || gone.contains(agent)) continue;
      if (here.contains(agent)) return agent;
      *open = false;
      awaited = true;
    }
  }
  if (awaited) return kNobody;
  const auto fewest = std::min_element(here.begin(), here.end(), [this](int a, int b) {
    return SharesOf(a).size() < SharesOf(b).size();
  });
  return fewest == here.end() ? kNobody : *fewest;
}

int HostAssignment::RolloutsWith(const std::set<int>& agents) const {
  int rollouts = 0;
  for (const Host& host : hosts_) {
    if (agents.contains(host.rollouts_agent)) rollouts += host.share.rollouts.count;
  }
  return rollouts;
}

void HostAssignment::SettleTrainers(int host,
                                    const std::set<int>& here,
                                    const std::set<int>& gone,
                                    std::vector<HostMove>* moves) {
  Host& of_plan = hosts_[static_cast<size_t>(host)];
  const int from = of_plan.trainers_agent;
  if (!gone.contains(from)) return;
  const int spare = FindSpare(here);
  const int to = spare != kNobody ? spare : FindNeighbour(host, here, gone);
  if (to == kNobody || (spare == kNobody && !double_up_)) return;
  HostMove move{.host = host, .from = from, .to = to, .doubled = spare == kNobody};
  Append(WorkerRole::kTrainer, of_plan.share.trainers, &move.workers);
  const bool along = of_plan.rollouts_agent == from && (!apart_ || spare != kNobody);
  if (along) Append(WorkerRole::kRollout, of_plan.share.rollouts, &move.workers);
  of_plan.trainers_agent = to;
  if (along) of_plan.rollouts_agent = to;
  moves->push_back(std::move(move));
}

void HostAssignment::SettleRollouts(int host,
                                    const std::set<int>& here,
                                    const std::set<int>& gone,
                                    std::vector<HostMove>* moves) {
  Host& of_plan = hosts_[static_cast<size_t>(host)];
  const int from = of_plan.rollouts_agent;
  const bool left_out = from == kNobody && of_plan.share.rollouts.count > 0;
  if (!gone.contains(from) && !left_out) return;
  const int to = FindSpare(here);
  if (to == kNobody && (left_out || RolloutsWith(here) < min_rollouts_)) return;
  HostMove move{.host = host, .from = from, .to = to};
  Append(WorkerRole::kRollout, of_plan.share.rollouts, &move.workers);
  of_plan.rollouts_agent = to;
  moves->push_back(std::move(move));
}

std::vector<HostMove> HostAssignment::Settle(const std::set<int>& here, const std::set<int>& gone) {
  std::vector<HostMove> moves;
  for (int host = 0; host < hosts(); ++host) SettleTrainers(host, here, gone, &moves);
  for (int host = 0; apart_ && host < hosts(); ++host) SettleRollouts(host, here, gone, &moves);
  return moves;
}

void HostAssignment::Adopt(int agent, const std::vector<WorkerKey>& running) {
  for (Host& host : hosts_) {
    if (AnyIn(WorkerRole::kTrainer, host.share.trainers, running)) host.trainers_agent = agent;
    if (AnyIn(WorkerRole::kRollout, host.share.rollouts, running)) host.rollouts_agent = agent;
  }
}

}  // namespace tandem
