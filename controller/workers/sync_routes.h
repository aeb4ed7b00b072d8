// Which trainer sends its weights to which rollout.
#pragma once

#include <optional>
#include <vector>

namespace tandem {

struct SyncRoute {
  int trainer = 0;
  int rollout = 0;

  friend bool operator==(const SyncRoute&, const SyncRoute&) = default;
};

// All routes of a run, as its Placement says. Ranks of trainers and of rollouts are counted apart,
// each from 0. A value; thread-safe.
class SyncRoutes {
 public:
  // Every rollout is in one route. A trainer is in one at most, because SyncCall names one rollout;
  // the others take part in the gathers only.
  explicit SyncRoutes(std::vector<SyncRoute> routes);

  // In the order of the rollouts' ranks.
  const std::vector<SyncRoute>& list() const { return routes_; }
  // Ranks of all rollouts, ascending.
  std::vector<int> rollouts() const;
  // The rollout that the trainer sends to; nullopt: none.
  std::optional<int> RolloutOf(int trainer) const;
  // The trainer that sends to the rollout, which must be in a route.
  int TrainerOf(int rollout) const;

 private:
  std::vector<SyncRoute> routes_;
};

}  // namespace tandem
