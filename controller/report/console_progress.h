// Shows the run at the terminal: a bar that is redrawn, or plain lines if stdout is not a terminal.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "controller/store/progress.h"

namespace tandem {

struct ConsoleOptions {
  std::FILE* out = stdout;
  bool terminal = false;  // redraw the bar in place
};

// Not thread-safe: called by the train loop's thread.
class ConsoleProgress final : public ProgressSink {
 public:
  explicit ConsoleProgress(ConsoleOptions options) : options_(options) {}

  void OnRunStart(const RunInfo& info) override;
  void OnPhase(int64_t step, const std::string& phase) override;
  void OnPhaseProgress(int64_t step, int64_t done, int64_t total) override;
  void OnLogProbs(int64_t step, const LogProbSummary& comparison) override;
  void OnShortened(int64_t steps) override { info_ = Shortened(info_, steps); }
  void OnStep(const StepRecord& record) override;
  void OnEvaluation(const EvaluationRecord& record) override;
  void OnMessage(const std::string& text) override;
  void OnRunEnd(const RunSummary& summary, const RunFigures& figures) override;

 private:
  void Line(const std::string& text);  // above the bar
  void DrawBar();
  void ClearBar();
  std::string Eta() const;

  ConsoleOptions options_;
  RunInfo info_;
  std::string phase_, detail_, last_metrics_;
  LogProbSummary log_probs_;  // of the step in progress
  int64_t finished_ = 0;      // newest finished step of the run
  int64_t made_ = 0;          // steps of this process, repeated ones included
  double seconds_of_made_ = 0;
  bool bar_drawn_ = false;
};

}  // namespace tandem
