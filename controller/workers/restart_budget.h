// Limits how many incidents a run recovers from (cluster.max_restarts, of the workers of each role
// within cluster.restart_window_seconds).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include <absl/status/status.h>
#include <absl/time/time.h>

#include "common/base/clock.h"

namespace tandem {

enum class WorkerRole;

// The death of one process may be noticed several times until all workers have rejoined: a trainer
// reports it, then a call to the dead worker fails. All of this is one incident, which ends when a
// step or a recovery succeeds. Called by the train loop's thread; spent() may be called by any.
class RestartBudget {
 public:
  explicit RestartBudget(int64_t limit,
                         absl::Duration window = absl::InfiniteDuration(),
                         Clock& clock = RealClock())
      : limit_(limit), window_(window), clock_(clock) {}

  // Counts a failure towards the open incident, or opens one for `role`, the role that was lost. An
  // incident covers at most four failures; a fifth opens a new one, so that a worker that dies in
  // every recovery exhausts the limit. Internal, with `reason` in its message: the limit is
  // reached, so the run must end.
  absl::Status Charge(WorkerRole role, const absl::Status& reason);
  // Whether Charge has failed once; from then on nothing is recovered.
  bool gave_up() const { return gave_up_; }
  // The next failure opens a new incident.
  void CloseIncident() { attempts_ = 0; }
  // Incidents so far, of all roles and times.
  int64_t spent() const { return spent_; }
  // "recovering (1 of 3): " and the message of `reason`, for the run's output.
  std::string RecoveringFrom(const absl::Status& reason) const;

 private:
  const int64_t limit_;
  const absl::Duration window_;
  Clock& clock_;
  std::map<WorkerRole, std::deque<Instant>> incidents_;  // within the window, the oldest first
  int64_t newest_ = 0;  // which of the window's incidents the last one is
  std::atomic<int64_t> spent_ = 0;
  int attempts_ = 0;  // in the open incident
  bool gave_up_ = false;
};

}  // namespace tandem
