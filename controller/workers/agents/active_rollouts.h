// The rollouts that take part in a run: all, but for those whose host is lost and nobody else runs.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include <absl/base/thread_annotations.h>

#include "common/base/mutex.h"

namespace tandem {

// Ranks that are left out are not waited for, asked or sent anything. Which rollouts take part
// changes no result: samples are keyed by their id. Thread-safe.
class ActiveRollouts {
 public:
  explicit ActiveRollouts(int rollouts) : rollouts_(rollouts) {}

  // Ascending.
  std::vector<int> Ranks() const;
  bool Contains(int rank) const;

  void LeaveOut(int rank);
  // Takes those that are left out in again for which `ready` is true, and returns them. To be
  // called before weights are sent, so that none takes part without.
  std::vector<int> TakeIn(const std::function<bool(int rank)>& ready);

 private:
  const int rollouts_;
  mutable Mutex ranks_mutex_;
  std::set<int> left_out_ ABSL_GUARDED_BY(ranks_mutex_);
};

}  // namespace tandem
