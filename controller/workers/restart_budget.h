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

  // OK; or Internal, where all are spent, with that and `reason` in its message: a peer that is
  // lost is no reason any more to wait for it.
  absl::Status Spend(const absl::Status& reason);
  // Whether Spend has refused once: nothing is recovered from then on.
  bool gave_up() const { return gave_up_; }
  // All is well again: the next failure is a new incident.
  void Settle() { attempts_ = 0; }
  int64_t spent() const { return spent_; }
  int64_t limit() const { return limit_; }

 private:
  const int64_t limit_;
  std::atomic<int64_t> spent_ = 0;
  int attempts_ = 0;  // in the present incident
  bool gave_up_ = false;
};

}  // namespace tandem
