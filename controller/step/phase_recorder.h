// Seconds and peak memory of each phase of a step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/time/time.h>

#include "common/base/clock.h"
#include "controller/store/progress.h"
#include "controller/store/run_store.h"
#include "controller/workers/worker_pool.h"

namespace tandem {

// One object per step, one phase at a time. Times of a phase that runs several times (train and
// optimize alternate) are added up. Not thread-safe.
class PhaseRecorder {
 public:
  // The references must outlive the recorder.
  PhaseRecorder(int64_t step, WorkerPool& pool, ProgressSink& progress, Clock& clock)
      : step_(step), pool_(pool), progress_(progress), clock_(clock), started_(clock.Now()) {}

  // Ends the running phase, if there is one. `phase`: a string literal, also for NoteActivity.
  void Begin(const char* phase);
  // Adds a worker's report of the running phase. For workers without a report, End uses their last
  // known ledgers.
  void Report(const WorkerKey& key, const PhaseReport& report);
  // Adds the reports of all workers of a role, indexed by rank.
  void Report(WorkerRole role, const std::vector<PhaseReport>& reports);
  // Adds a worker's report of a phase that has ended. Does nothing if there was no such phase.
  void ReportOf(const std::string& phase, const WorkerKey& key, const PhaseReport& report);
  void End();

  const std::vector<PhaseTime>& phases() const { return phases_; }
  double Seconds(const std::string& phase) const;
  double TotalSeconds() const { return absl::ToDoubleSeconds(clock_.Now() - started_); }

 private:
  const int64_t step_;
  WorkerPool& pool_;
  ProgressSink& progress_;
  Clock& clock_;
  PhaseTime* Find(const std::string& phase);
  const Instant started_;
  std::vector<PhaseTime> phases_;  // in the order of their first Begin
  std::string current_;
  Instant current_start_;
  std::map<WorkerKey, LedgerSnapshot> reported_;  // of the running phase
};

}  // namespace tandem
