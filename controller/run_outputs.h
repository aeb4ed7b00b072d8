// What a run begins from and what it leaves: resume point, trackers, run row, report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/clock.h"
#include "common/config/config.h"
#include "common/observe/tracker.h"
#include "controller/checkpoint_index.h"
#include "controller/progress.h"
#include "controller/store/run_store.h"

namespace tandem {

inline constexpr char kBuild[] = "tandem 0.1.0";

struct ResumePoint {
  std::string checkpoint;  // empty: from the model
  int64_t step = 0;        // finished steps there
  std::string note;        // for the user, may be empty
};

// By trainer.resume_mode. auto: the newest good checkpoint; one of a run that had finished all
// `total_steps` is set aside, and the run starts anew. disable: what is there is set aside.
// resume_path: that one; NotFound or DataLoss if it is not whole.
absl::StatusOr<ResumePoint> ChooseResumePoint(const v1::Config& config,
                                              int64_t total_steps,
                                              CheckpointIndex& checkpoints);

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
  // Writes the report as well; what fails here is logged, not returned: the run is over.
  void End(const absl::Status& status, RunSummary summary, const std::string& numerics_class);

 private:
  RunStore& store_;
  ProgressSink& progress_;
  RunInfo info_;
  const absl::Time started_;
};

}  // namespace tandem
