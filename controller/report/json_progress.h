// Shows the run to programs: one JSON object per line (docs/reference/log_json.md).
#pragma once

#include <cstdio>
#include <string>

#include "common/base/clock.h"
#include "controller/store/progress.h"

namespace tandem {

// Not thread-safe: called by the train loop's thread.
class JsonProgress final : public ProgressSink {
 public:
  // `out` and `clock` must outlive the object.
  JsonProgress(std::FILE* out, Clock& clock) : out_(out), clock_(clock) {}

  void OnRunStart(const RunInfo& info) override;
  void OnPhase(int64_t step, const std::string& phase) override;
  // Not told: "phase" says what the run is at, and a line per sample would drown the others.
  void OnPhaseProgress(int64_t, int64_t, int64_t) override {}
  void OnLogProbs(int64_t step, const LogProbSummary& comparison) override;
  void OnShortened(int64_t steps) override;
  void OnStepDetails(int64_t step, const StepDetails& details) override;
  void OnStep(const StepRecord& record) override;
  void OnEvaluation(const EvaluationRecord& record) override;
  void OnMessage(const std::string& text) override;
  void OnRunEnd(const RunSummary& summary, const RunFigures& figures) override;

 private:
  std::FILE* const out_;
  Clock& clock_;
  LogProbSummary log_probs_;  // of the step in progress
  StepDetails details_;
};

}  // namespace tandem
