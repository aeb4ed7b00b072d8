// Hands the run's events to every sink, and remembers the phase for whoever asks.
#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "controller/store/progress.h"

namespace tandem {

// The sinks must outlive it. phase() is thread-safe.
class ProgressRelay final : public ProgressSink {
 public:
  explicit ProgressRelay(std::vector<ProgressSink*> sinks) : sinks_(std::move(sinks)) {}

  std::string phase() const {
    std::lock_guard lock(mutex_);
    return phase_;
  }

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
  void OnLogProbs(int64_t step, const LogProbComparison& comparison) override {
    for (ProgressSink* sink : sinks_) sink->OnLogProbs(step, comparison);
  }
  void OnShortened(int64_t steps) override {
    for (ProgressSink* sink : sinks_) sink->OnShortened(steps);
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
  void OnRunEnd(const RunSummary& summary) override {
    for (ProgressSink* sink : sinks_) sink->OnRunEnd(summary);
  }

 private:
  void SetPhase(const std::string& phase) {
    std::lock_guard lock(mutex_);
    phase_ = phase;
  }

  const std::vector<ProgressSink*> sinks_;
  mutable std::mutex mutex_;
  std::string phase_;
};

}  // namespace tandem
