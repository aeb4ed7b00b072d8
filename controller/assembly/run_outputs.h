// The outputs of a run: trackers, its row in the store, its report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/base/clock.h"
#include "common/config/config.h"
#include "controller/store/progress.h"
#include "controller/store/run_store.h"
#include "controller/store/trackers/trackers.h"

namespace tandem {

// Facts of a run that are known only from the workers' registrations.
struct RunMachinery {
  std::string builds;  // the controller's, and those of workers of other builds
  std::string numerics_class;
  std::string kernel_sets;
};

// What stdout shows of the run: lines of JSON, or text for people.
std::unique_ptr<ProgressSink> MakeShownProgress(const v1::Config& config, bool json);

// The trackers of trainer.logger: run_dir/metrics.jsonl, run_dir/tensorboard, and lines on stdout
// unless that is a terminal, which shows the progress bar instead, or has lines of JSON.
std::vector<std::unique_ptr<Tracker>> MakeTrackers(const v1::Config& config,
                                                   bool json,
                                                   Clock& clock);

// "project/experiment/20260131-120000"
std::string MakeRunId(const v1::Config& config, absl::Time now);

// Writes the run's row, reports its start and end, and writes report.html.
class RunRecorder {
 public:
  RunRecorder(RunStore& store, ProgressSink& progress, RunInfo info);

  // Reports the start. Writes nothing: the start may still fail, and leave an earlier run's records
  // as they are.
  void Begin();
  // Writes the run's row. From here on the run has records, and a report at its end.
  absl::Status Record();
  // Reports the end and, if there are records, writes the row again and the report. Failures of
  // writing are logged; they change nothing about the run.
  void End(const absl::Status& status, RunSummary summary, const RunMachinery& machinery);

 private:
  absl::Status WriteEnd(RunSummary& summary, RunFigures& figures);

  RunStore& store_;
  ProgressSink& progress_;
  RunInfo info_;
  const Instant started_;
  bool recorded_ = false;
};

}  // namespace tandem
