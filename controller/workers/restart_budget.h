// Limits how many incidents a run recovers from (cluster.max_restarts).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <absl/status/status.h>

namespace tandem {

// The death of one process may be noticed several times until all workers have rejoined: a trainer
// reports it, then a call to the dead worker fails. All of this is one incident, which ends when a
// step or a recovery succeeds. Called by the train loop's thread; spent() may be called by any.
class RestartBudget {
 public:
  explicit RestartBudget(int64_t limit) : limit_(limit) {}

  // Charges a failure to the open incident, or opens an incident. Internal, with `reason` in its
  // message: the limit is reached, so the run must end.
  absl::Status Charge(const absl::Status& reason);
  // Whether Charge has failed once; from then on nothing is recovered.
  bool gave_up() const { return gave_up_; }
  // The next failure opens a new incident.
  void CloseIncident() { attempts_ = 0; }
  int64_t spent() const { return spent_; }
  // "recovering (1 of 3): " and the message of `reason`, for the run's output.
  std::string RecoveringFrom(const absl::Status& reason) const;

 private:
  const int64_t limit_;
  std::atomic<int64_t> spent_ = 0;
  int attempts_ = 0;  // in the open incident
  bool gave_up_ = false;
};

}  // namespace tandem
