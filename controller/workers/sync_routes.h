// Which trainer sends its weights to which rollout.
#pragma once

#include <map>
#include <vector>

namespace tandem {

struct SyncRoute {
  int trainer = 0;
  int rollout = 0;

  friend bool operator==(const SyncRoute&, const SyncRoute&) = default;
};

// Of one call to all trainers: the rollout that a trainer is to work with, by the trainer's rank.
// Trainers without one take part in the gathers only.
using RolloutOfTrainer = std::map<int, int>;

// All routes of a run, as its Placement says. Ranks of trainers and of rollouts are counted apart,
// each from 0. A value; thread-safe.
class SyncRoutes {
 public:
  // Every rollout is in one route. A trainer may be in several, or in none.
  explicit SyncRoutes(std::vector<SyncRoute> routes);

  // In the order of the rollouts' ranks.
  const std::vector<SyncRoute>& list() const { return routes_; }
  // The trainer that sends to the rollout, which must be in a route.
  int TrainerOf(int rollout) const;
  // Divides rollouts into rounds, because a call to a trainer names one of them: in the first,
  // every trainer works with the first of its `rollouts`, in the next with its second, and so on.
  std::vector<RolloutOfTrainer> Rounds(const std::vector<int>& rollouts) const;

 private:
  std::vector<SyncRoute> routes_;
};

}  // namespace tandem
