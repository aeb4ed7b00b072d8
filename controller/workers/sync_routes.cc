#include "controller/workers/sync_routes.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace tandem {

SyncRoutes::SyncRoutes(std::vector<SyncRoute> routes) : routes_(std::move(routes)) {
  std::sort(routes_.begin(), routes_.end(),
            [](const SyncRoute& a, const SyncRoute& b) { return a.rollout < b.rollout; });
  for (size_t i = 0; i < routes_.size(); ++i) {
    TANDEM_CHECK(routes_[i].rollout == static_cast<int>(i),
                 "the ranks of rollouts in routes have a gap, or one rank twice");
  }
}

int SyncRoutes::TrainerOf(int rollout) const {
  return routes_.at(static_cast<size_t>(rollout)).trainer;
}

std::vector<RolloutOfTrainer> SyncRoutes::Rounds(const std::vector<int>& rollouts) const {
  std::vector<RolloutOfTrainer> rounds;
  for (const int rollout : rollouts) {
    const int trainer = TrainerOf(rollout);
    const auto open =
        std::find_if(rounds.begin(), rounds.end(),
                     [trainer](const RolloutOfTrainer& round) { return !round.contains(trainer); });
    (open == rounds.end() ? rounds.emplace_back() : *open)[trainer] = rollout;
  }
  return rounds;
}

}  // namespace tandem
