// Which rollouts a trainer sends to in one call: one, or several along a chain.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "controller/workers/sync_routes.h"
#include "controller/workers/worker_registry.h"

namespace tandem {

// Whether the weights of a route go over TCP. Empty: none do.
using OverTcp = std::function<bool(const SyncRoute& route)>;
// Where trainer and rollout are on different hosts, or `always` (weight_sync.transport is tcp).
// Those of one host share memory, and their workers choose how. `registry` outlives the result.
OverTcp OverTcpByHost(const WorkerRegistry& registry, bool always);

// Of one call to all trainers: the rollouts that a trainer sends to, by the trainer's rank. Several
// are a chain in this order.
using SyncRound = std::map<int, std::vector<int>>;

// Divides the rollouts that are to get weights into rounds. Thread-safe.
class FanOut {
 public:
  virtual ~FanOut() = default;
  // `receivers`: ranks of rollouts, ascending.
  virtual std::vector<SyncRound> Rounds(const SyncRoutes& routes,
                                        const std::vector<int>& receivers) const = 0;
};

// From a trainer to one rollout after the other.
std::unique_ptr<FanOut> MakeStar();
// A trainer's rollouts that are reached over TCP are a chain, if there are `shortest` of them or
// more; the others as in a star. Rollouts of one host are neighbours in the chain. `registry`
// outlives the result.
std::unique_ptr<FanOut> MakeChain(const WorkerRegistry& registry,
                                  OverTcp over_tcp,
                                  size_t shortest);
// As weight_sync.fan_out says.
std::unique_ptr<FanOut> MakeFanOut(const std::string& key,
                                   const WorkerRegistry& registry,
                                   OverTcp over_tcp);

}  // namespace tandem
