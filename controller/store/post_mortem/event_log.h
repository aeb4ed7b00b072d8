// Writes what happens to a run into its records and its blackbox.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "controller/store/post_mortem/blackbox.h"
#include "controller/store/progress.h"
#include "controller/store/run_store.h"

namespace tandem {

// Until StartWriting, which is called once the run has records of its own, events are kept in
// memory. So are those that the store refuses, as of a full disk, until it takes them; beyond
// kMostKept the oldest are dropped. Thread-safe; never waits for a disk that refuses, and where a
// disk hangs, Newest still answers.
class EventLog final : public ProgressSink {
 public:
  static constexpr size_t kMostKept = 1000;
  static constexpr size_t kNewest = 5;

  // `blackbox` may be null; all must outlive the log.
  EventLog(RunStore& store, Blackbox* blackbox, Clock& clock)
      : store_(store), blackbox_(blackbox), clock_(clock) {}

  void StartWriting();

  // The newest events, at most kNewest, in ascending order; those of earlier starts too, once
  // StartWriting was called. Asks no disk.
  std::vector<EventRecord> Newest() const;

  void OnRunStart(const RunInfo& info) override;
  void OnPhase(int64_t step, const std::string& phase) override;
  void OnPhaseProgress(int64_t, int64_t, int64_t) override {}
  void OnLogProbs(int64_t, const LogProbSummary&) override {}
  void OnShortened(int64_t steps) override;
  void OnStep(const StepRecord& record) override;
  void OnEvaluation(const EvaluationRecord& record) override;
  void OnMessage(const std::string& text) override;
  void OnEvent(const EventRecord& event) override;
  void OnRunEnd(const RunSummary& summary, const RunFigures& figures) override;

 private:
  void Note(const EventRecord& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(events_mutex_);
  void Flush() ABSL_LOCKS_EXCLUDED(write_mutex_, events_mutex_);

  RunStore& store_;
  Blackbox* const blackbox_;
  Clock& clock_;
  // Held while the store writes.
  Mutex write_mutex_ ABSL_ACQUIRED_BEFORE(events_mutex_);
  mutable Mutex events_mutex_;  // never held while the store is asked
  bool writes_ ABSL_GUARDED_BY(events_mutex_) = false;
  int64_t step_ ABSL_GUARDED_BY(events_mutex_) = 0;  // newest finished one
  std::vector<EventRecord> waiting_ ABSL_GUARDED_BY(events_mutex_);
  std::vector<EventRecord> newest_ ABSL_GUARDED_BY(events_mutex_);
};

// How a run ended: "finished", "stopped" or "failed".
RunOutcome OutcomeOf(const RunSummary& summary);

}  // namespace tandem
