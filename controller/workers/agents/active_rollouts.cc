#include "controller/workers/agents/active_rollouts.h"

namespace tandem {

std::vector<int> ActiveRollouts::Ranks() const {
  const MutexLock lock(ranks_mutex_);
  std::vector<int> ranks;
  for (int rank = 0; rank < rollouts_; ++rank) {
    if (!left_out_.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

bool ActiveRollouts::Contains(int rank) const {
  const MutexLock lock(ranks_mutex_);
  return rank >= 0 && rank < rollouts_ && !left_out_.contains(rank);
}

void ActiveRollouts::LeaveOut(int rank) {
  const MutexLock lock(ranks_mutex_);
  left_out_.insert(rank);
}

std::vector<int> ActiveRollouts::TakeIn(const std::function<bool(int rank)>& ready) {
  const MutexLock lock(ranks_mutex_);
  std::vector<int> taken;
  for (const int rank : left_out_) {
    if (ready(rank)) taken.push_back(rank);
  }
  for (const int rank : taken) left_out_.erase(rank);
  return taken;
}

}  // namespace tandem
