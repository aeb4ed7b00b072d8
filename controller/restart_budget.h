// How many incidents a run forgives.
#pragma once

#include <atomic>
#include <cstdint>

#include <absl/status/status.h>

namespace tandem {

// One death may show up several times until everybody is back (a trainer reports it, then a call to
// the dead worker fails): that is one incident, which ends when a step or a recovery succeeds. For
// the train loop's thread; spent() is for any.
class RestartBudget {
 public:
  explicit RestartBudget(int64_t limit) : limit_(limit) {}

  // OK, or `reason` with the note that cluster.max_restarts is used up.
  absl::Status Spend(const absl::Status& reason);
  // All is well again: the next failure is a new incident.
  void Settle() { attempts_ = 0; }
  int64_t spent() const { return spent_; }
  int64_t limit() const { return limit_; }

 private:
  const int64_t limit_;
  std::atomic<int64_t> spent_ = 0;
  int attempts_ = 0;  // in the present incident
};

}  // namespace tandem
