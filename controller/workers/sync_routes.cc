#include "controller/workers/sync_routes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/check.h"

namespace tandem {

SyncRoutes::SyncRoutes(std::vector<SyncRoute> routes) : routes_(std::move(routes)) {
  std::sort(routes_.begin(), routes_.end(),
            [](const SyncRoute& a, const SyncRoute& b) { return a.rollout < b.rollout; });
  std::set<int> trainers;
  for (size_t i = 0; i < routes_.size(); ++i) {
    TANDEM_CHECK(routes_[i].rollout == static_cast<int>(i),
                 "the ranks of rollouts in routes have a gap, or one rank twice");
    TANDEM_CHECK(trainers.insert(routes_[i].trainer).second, "a trainer is in two routes");
  }
}

std::vector<int> SyncRoutes::rollouts() const {
  std::vector<int> ranks;
  for (const SyncRoute& route : routes_) ranks.push_back(route.rollout);
  return ranks;
}

std::optional<int> SyncRoutes::RolloutOf(int trainer) const {
  const auto found =
      std::find_if(routes_.begin(), routes_.end(),
                   [trainer](const SyncRoute& route) { return route.trainer == trainer; });
  if (found == routes_.end()) return std::nullopt;
  return found->rollout;
}

int SyncRoutes::TrainerOf(int rollout) const {
  return routes_.at(static_cast<size_t>(rollout)).trainer;
}

}  // namespace tandem
