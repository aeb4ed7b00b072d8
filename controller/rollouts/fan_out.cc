#include "controller/rollouts/fan_out.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/types/host_id.h"

namespace tandem {
namespace {

// From so many rollouts on a chain is shorter than a star by more than what it costs.
constexpr size_t kShortestOfAuto = 3;
constexpr size_t kShortestChain = 2;

// What one trainer sends, call by call.
using Lines = std::vector<std::vector<int>>;

std::vector<SyncRound> RoundsOf(const std::map<int, Lines>& lines) {
  std::vector<SyncRound> rounds;
  for (const auto& [trainer, of_trainer] : lines) {
    if (rounds.size() < of_trainer.size()) rounds.resize(of_trainer.size());
    for (size_t i = 0; i < of_trainer.size(); ++i) rounds[i][trainer] = of_trainer[i];
  }
  return rounds;
}

class Star final : public FanOut {
 public:
  std::vector<SyncRound> Rounds(const SyncRoutes& routes,
                                const std::vector<int>& receivers) const override {
    std::map<int, Lines> lines;
    for (const int rollout : receivers) lines[routes.TrainerOf(rollout)].push_back({rollout});
    return RoundsOf(lines);
  }
};

class Chain final : public FanOut {
 public:
  Chain(const WorkerRegistry& registry, OverTcp over_tcp, size_t shortest)
      : registry_(registry), over_tcp_(std::move(over_tcp)), shortest_(shortest) {}

  std::vector<SyncRound> Rounds(const SyncRoutes& routes,
                                const std::vector<int>& receivers) const override {
    std::map<int, std::vector<int>> remote;
    std::map<int, Lines> lines;
    for (const int rollout : receivers) {
      const int trainer = routes.TrainerOf(rollout);
      const bool far = over_tcp_ && over_tcp_({.trainer = trainer, .rollout = rollout});
      if (far) {
        remote[trainer].push_back(rollout);
      } else {
        lines[trainer].push_back({rollout});
      }
    }
    for (const auto& [trainer, rollouts] : remote) {
      Lines& own = lines[trainer];
      if (rollouts.size() >= shortest_) {
        own.push_back(ByHost(rollouts));
      } else {
        for (const int rollout : rollouts) own.push_back({rollout});
      }
    }
    return RoundsOf(lines);
  }

 private:
  // The same rollouts, those of a host behind the first of them.
  std::vector<int> ByHost(const std::vector<int>& rollouts) const {
    std::vector<std::pair<std::optional<WorkerEntry>, std::vector<int>>> hosts;
    for (const int rollout : rollouts) {
      const auto entry = registry_.Find({WorkerRole::kRollout, rollout});
      const auto known = std::find_if(hosts.begin(), hosts.end(), [&entry](const auto& host) {
        return entry && host.first &&
               SameHost(entry->announcement.host, host.first->announcement.host);
      });
      if (known != hosts.end()) {
        known->second.push_back(rollout);
      } else {
        hosts.push_back({entry, {rollout}});
      }
    }
    std::vector<int> ordered;
    for (const auto& [host, own] : hosts) ordered.insert(ordered.end(), own.begin(), own.end());
    return ordered;
  }

  const WorkerRegistry& registry_;
  const OverTcp over_tcp_;
  const size_t shortest_;
};

}  // namespace

OverTcp OverTcpByHost(const WorkerRegistry& registry, bool always) {
  return [&registry, always](const SyncRoute& route) {
    if (always) return true;
    const auto trainer = registry.Find({WorkerRole::kTrainer, route.trainer});
    const auto rollout = registry.Find({WorkerRole::kRollout, route.rollout});
    return trainer && rollout && !SameHost(trainer->announcement.host, rollout->announcement.host);
  };
}

std::unique_ptr<FanOut> MakeStar() { return std::make_unique<Star>(); }

std::unique_ptr<FanOut> MakeChain(const WorkerRegistry& registry,
                                  OverTcp over_tcp,
                                  size_t shortest) {
  return std::make_unique<Chain>(registry, std::move(over_tcp), shortest);
}

std::unique_ptr<FanOut> MakeFanOut(const std::string& key,
                                   const WorkerRegistry& registry,
                                   OverTcp over_tcp) {
  if (key == "star") return MakeStar();
  return MakeChain(registry, std::move(over_tcp),
                   key == "chain" ? kShortestChain : kShortestOfAuto);
}

}  // namespace tandem
