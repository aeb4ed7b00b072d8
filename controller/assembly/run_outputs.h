// What a run leaves: trackers, run row, report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>

#include "common/base/clock.h"
#include "common/config/config.h"
#include "controller/store/progress.h"
#include "controller/store/run_store.h"
#include "controller/store/trackers.h"

namespace tandem {

// What only the workers' registrations tell of a run.
struct RunMachinery {
  std::string builds;  // of the controller, and of workers of another
  std::string numerics_class;
  std::string kernel_sets;
};

// Those of trainer.logger: run_dir/metrics.jsonl, run_dir/tensorboard, and lines on stdout where
// stdout is no terminal (the progress bar stands for them there).
std::unique_ptr<Tracker> MakeTrackers(const v1::Config& config, Clock& clock);

// "project/experiment/20260131-120000"
std::string MakeRunId(const v1::Config& config, absl::Time now);

// The run's row, its first and last event, and report.html.
class RunRecorder {
 public:
  RunRecorder(RunStore& store, ProgressSink& progress, RunInfo info);

  absl::Status Begin();
  // Writes the report as well. What fails here is logged and returned; the run itself ended with
  // `status`, which it does not change.
  absl::Status End(const absl::Status& status, RunSummary summary, const RunMachinery& machinery);

 private:
  RunStore& store_;
  ProgressSink& progress_;
  RunInfo info_;
  const absl::Time started_;
};

}  // namespace tandem
