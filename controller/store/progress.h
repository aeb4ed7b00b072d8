// The events of a run that are shown at the terminal.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "controller/store/run_store.h"

namespace tandem {

// Log-probs of the rollout compared with the trainer's, before the first optimizer step: "N of N
// token log-probs identical".
struct LogProbSummary {
  int64_t compared = 0;
  int64_t identical = 0;
  double max_abs_difference = 0;
  double mean_abs_difference = 0;

  // Adds other tokens.
  void Join(const LogProbSummary& other) {
    if (other.compared == 0) return;
    const auto sum = [](const LogProbSummary& part) {
      return part.mean_abs_difference * static_cast<double>(part.compared);
    };
    mean_abs_difference =
        (sum(*this) + sum(other)) / static_cast<double>(compared + other.compared);
    compared += other.compared;
    identical += other.identical;
    max_abs_difference = std::max(max_abs_difference, other.max_abs_difference);
  }
};

// What is shown of a step beside its record.
struct StepDetails {
  // Two samples of the group whose rewards differ most, the better one first; one where all rewards
  // of the step are equal.
  std::vector<SampleRecord> samples;
  int64_t weight_bytes = 0;   // that the trainers sent to the rollouts after the step
  std::string weight_digest;  // of those weights, hex; empty: nothing was sent
  // While the step was generated, of the fullest rollout, as far as heartbeats told: the largest
  // share of its KV blocks in use, and the most samples that waited for blocks.
  std::optional<double> kv_share;
  std::optional<int64_t> waiting;
};

// The end of a run: its result, and where its files are.
struct RunSummary {
  bool completed = false;   // all steps done, no error
  std::string error;        // of a run that failed
  int64_t steps = 0;        // finished steps
  int64_t total_steps = 0;  // of the run, which a time limit may have reduced; 0: as it began
  int64_t restarts = 0;     // of workers
  double seconds = 0;
  std::string checkpoint;  // newest complete one, empty if none
  std::string report;      // path of the report that was written, empty if none
};

class RunFigures;

// Called by the train loop's thread, in the order of the events. Must return quickly and cannot
// fail a run.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;

  virtual void OnRunStart(const RunInfo& info) = 0;
  virtual void OnPhase(int64_t step, const std::string& phase) = 0;
  // `done` of `total` in the current phase, e.g. samples generated.
  virtual void OnPhaseProgress(int64_t step, int64_t done, int64_t total) = 0;
  virtual void OnLogProbs(int64_t step, const LogProbSummary& comparison) = 0;
  // The run ends after `steps` steps, fewer than OnRunStart said.
  virtual void OnShortened(int64_t steps) = 0;
  // Comes right before OnStep of the same step.
  virtual void OnStepDetails(int64_t /*step*/, const StepDetails& /*details*/) {}
  virtual void OnStep(const StepRecord& record) = 0;
  virtual void OnEvaluation(const EvaluationRecord& record) = 0;
  // One line about a lost worker, a recovery, a checkpoint and so on.
  virtual void OnMessage(const std::string& text) = 0;
  // An event of a kind that its records keep apart. Its text is a message for who only shows it.
  virtual void OnEvent(const EventRecord& event) {
    if (event.shown) OnMessage(event.text);
  }
  // `figures` are of the complete run, steps from before a resume included.
  virtual void OnRunEnd(const RunSummary& summary, const RunFigures& figures) = 0;
};

// Passes the run's events to every sink, and remembers the current phase. The sinks must outlive
// the relay. phase() and EndPhase() are thread-safe.
class ProgressRelay final : public ProgressSink {
 public:
  explicit ProgressRelay(std::vector<ProgressSink*> sinks) : sinks_(std::move(sinks)) {}

  std::string phase() const {
    const MutexLock lock(phase_mutex_);
    return phase_;
  }
  // The phase of a user's call is over, of which no other event tells.
  void EndPhase() { SetPhase(""); }

  void OnRunStart(const RunInfo& info) override {
    for (ProgressSink* sink : sinks_) sink->OnRunStart(info);
  }
  void OnPhase(int64_t step, const std::string& phase) override {
    SetPhase(phase);
    for (ProgressSink* sink : sinks_) sink->OnPhase(step, phase);
  }
  void OnPhaseProgress(int64_t step, int64_t done, int64_t total) override {
    for (ProgressSink* sink : sinks_) sink->OnPhaseProgress(step, done, total);
  }
  void OnLogProbs(int64_t step, const LogProbSummary& comparison) override {
    for (ProgressSink* sink : sinks_) sink->OnLogProbs(step, comparison);
  }
  void OnShortened(int64_t steps) override {
    for (ProgressSink* sink : sinks_) sink->OnShortened(steps);
  }
  void OnStepDetails(int64_t step, const StepDetails& details) override {
    for (ProgressSink* sink : sinks_) sink->OnStepDetails(step, details);
  }
  void OnStep(const StepRecord& record) override {
    SetPhase("");
    for (ProgressSink* sink : sinks_) sink->OnStep(record);
  }
  void OnEvaluation(const EvaluationRecord& record) override {
    SetPhase("");
    for (ProgressSink* sink : sinks_) sink->OnEvaluation(record);
  }
  void OnMessage(const std::string& text) override {
    for (ProgressSink* sink : sinks_) sink->OnMessage(text);
  }
  void OnEvent(const EventRecord& event) override {
    for (ProgressSink* sink : sinks_) sink->OnEvent(event);
  }
  void OnRunEnd(const RunSummary& summary, const RunFigures& figures) override {
    for (ProgressSink* sink : sinks_) sink->OnRunEnd(summary, figures);
  }

 private:
  void SetPhase(const std::string& phase) {
    const MutexLock lock(phase_mutex_);
    phase_ = phase;
  }

  const std::vector<ProgressSink*> sinks_;
  mutable Mutex phase_mutex_;
  std::string phase_ ABSL_GUARDED_BY(phase_mutex_);
};

}  // namespace tandem
