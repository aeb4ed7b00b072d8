// The outputs of a run: trackers, its row in the store, its report.
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

// Facts of a run that are known only from the workers' registrations.
struct RunMachinery {
  std::string builds;  // the controller's, and those of workers of other builds
  std::string numerics_class;
  std::string kernel_sets;
};

// The trackers of trainer.logger: run_dir/metrics.jsonl, run_dir/tensorboard, and lines on stdout
// unless stdout is a terminal, which shows the progress bar instead.
std::unique_ptr<Tracker> MakeTrackers(const v1::Config& config, Clock& clock);

// "project/experiment/20260131-120000"
std::string MakeRunId(const v1::Config& config, absl::Time now);

// Writes the run's row, reports its start and end, and writes report.html.
class RunRecorder {
 public:
  RunRecorder(RunStore& store, ProgressSink& progress, RunInfo info);

  absl::Status Begin();
  // Also writes the report. Failures of writing are logged and returned; they do not change the
  // run's own `status`.
  absl::Status End(const absl::Status& status, RunSummary summary, const RunMachinery& machinery);

 private:
  RunStore& store_;
  ProgressSink& progress_;
  RunInfo info_;
  const Instant started_;
};

}  // namespace tandem
