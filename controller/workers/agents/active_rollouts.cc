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

int ActiveRollouts::TimesLeftOut(int rank) const {
  const MutexLock lock(ranks_mutex_);
  const auto times = times_left_out_.find(rank);
  return times == times_left_out_.end() ? 0 : times->second;
}

int ActiveRollouts::CountLocked() const { return rollouts_ - static_cast<int>(left_out_.size()); }

void ActiveRollouts::LeaveOut(int rank) {
  const MutexLock lock(ranks_mutex_);
  left_out_.insert(rank);
  expected_.erase(rank);
  ++times_left_out_[rank];
  while (CountLocked() < min_rollouts_ && !expected_.empty()) {
    left_out_.erase(*expected_.begin());
    expected_.erase(expected_.begin());
  }
}

void ActiveRollouts::Expect(int rank) {
  const MutexLock lock(ranks_mutex_);
  if (left_out_.contains(rank)) expected_.insert(rank);
}

std::vector<int> ActiveRollouts::TakeIn(const std::function<bool(int rank)>& ready) {
  const MutexLock lock(ranks_mutex_);
  std::vector<int> taken;
  for (const int rank : left_out_) {
    if (ready(rank)) taken.push_back(rank);
  }
  for (const int rank : taken) {
    left_out_.erase(rank);
    expected_.erase(rank);
  }
  return taken;
}

}  // namespace tandem
