// The rollouts that take part in a run: all, but for those whose host is lost and nobody else runs.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include <absl/base/thread_annotations.h>

#include "common/base/mutex.h"

namespace tandem {

// Ranks that are left out are not waited for, asked or sent anything. Which rollouts take part
// changes no result: samples are keyed by their id. Thread-safe.
class ActiveRollouts {
 public:
  // At least `min_rollouts` take part at any time, as long as no more than the others are left out
  // for good.
  explicit ActiveRollouts(int rollouts, int min_rollouts = 1)
      : rollouts_(rollouts), min_rollouts_(min_rollouts) {}

  // Ascending.
  std::vector<int> Ranks() const;
  bool Contains(int rank) const;
  // How often the rank was left out so far.
  int TimesLeftOut(int rank) const;

  // Nobody runs the rank. If fewer than min_rollouts are left, those that somebody runs again take
  // part at once, so that they are waited for.
  void LeaveOut(int rank);
  // A host runs the rank again, if it was left out; it will be ready some time.
  void Expect(int rank);
  // Takes those that are left out in again for which `ready` is true, and returns them. To be
  // called before weights are sent, so that none takes part without.
  std::vector<int> TakeIn(const std::function<bool(int rank)>& ready);

 private:
  int CountLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(ranks_mutex_);

  const int rollouts_;
  const int min_rollouts_;
  mutable Mutex ranks_mutex_;
  std::set<int> left_out_ ABSL_GUARDED_BY(ranks_mutex_);
  std::set<int> expected_ ABSL_GUARDED_BY(ranks_mutex_);  // of those
  std::map<int, int> times_left_out_ ABSL_GUARDED_BY(ranks_mutex_);
};

}  // namespace tandem
