#include "controller/rollouts/fan_out.h"

#include <utility>

#include "common/types/host_id.h"
#include "common/types/weight_chain.h"

namespace tandem {
namespace {

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
    std::map<int, HostId> hosts;  // of those, by rollout
    std::map<int, Lines> lines;
    for (const int rollout : receivers) {
      const int trainer = routes.TrainerOf(rollout);
      const bool far = over_tcp_ && over_tcp_({.trainer = trainer, .rollout = rollout});
      if (far) {
        remote[trainer].push_back(rollout);
        hosts[rollout] = HostOf(rollout);
      } else {
        lines[trainer].push_back({rollout});
      }
    }
    for (const auto& [trainer, rollouts] : remote) {
      Lines& own = lines[trainer];
      if (rollouts.size() >= shortest_) {
        own.push_back(ChainOrder(rollouts, [&hosts](int one, int other) {
          return SameHost(hosts.at(one), hosts.at(other));
        }));
      } else {
        for (const int rollout : rollouts) own.push_back({rollout});
      }
    }
    return RoundsOf(lines);
  }

 private:
  // Unknown while the rollout is not registered.
  HostId HostOf(int rollout) const {
    const auto entry = registry_.Find({WorkerRole::kRollout, rollout});
    return entry ? entry->announcement.host : HostId();
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
  const int shortest = ShortestChain(key);
  if (shortest == 0) return MakeStar();
  return MakeChain(registry, std::move(over_tcp), static_cast<size_t>(shortest));
}

}  // namespace tandem
