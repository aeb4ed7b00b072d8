// The training algorithm, step by step, as docs/explanation/step.md describes it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/generation/generation_mode.h"
#include "controller/run/checkpointer.h"
#include "controller/run/placement.h"
#include "controller/run/recovery.h"
#include "controller/run/run_control.h"
#include "controller/run/validation_schedule.h"
#include "controller/run/weight_phases.h"
#include "controller/step/batch_saver.h"
#include "controller/step/run_length.h"
#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"
#include "controller/step/training_phase.h"

namespace tandem {

// The exchangeable parts of a run, chosen at assembly; never null.
struct RunModes {
  std::unique_ptr<GenerationMode> generation;
  Placement& placement;  // must outlive the loop
};

// Runs on one thread, which is the only one that uses the context.
class TrainLoop {
 public:
  // `context`, `options` and `control` must outlive the loop.
  TrainLoop(const StepContext& context,
            const TrainOptions& options,
            RunModes modes,
            RunControl& control);

  // Trains from `checkpoint` (empty: from the model) until all steps are done or the control ends
  // the run. `take_over` (may be empty) is called when the workers hold the state of the checkpoint
  // and nothing can refuse the start any more: before it, nothing in the run directory is changed,
  // and its error ends the run. First runs a validation that the checkpoint's step still lacks; at
  // the end saves a checkpoint if anything was trained since the last one. Returns any error that a
  // recovery cannot repair, after saving a last checkpoint of the finished steps if possible.
  absl::Status Run(const std::string& checkpoint,
                   const std::function<absl::Status()>& take_over = {});

  // May be called inside RunControl::BetweenSteps and after Run.
  const RunPosition& position() const { return position_; }
  const std::string& newest_checkpoint() const { return checkpointer_.newest(); }
  // Whether Run failed because the model or checkpoint could not be loaded.
  bool failed_loading() const { return recovery_.failed_loading() || generation_refused_; }
  // Whether all steps are done, saved and validated, so that a next start has nothing to do.
  bool complete() const;
  // The current number of steps of the run: a time limit may have reduced it.
  int64_t total_steps() const { return length_.total_steps(); }

 private:
  absl::Status Train();
  // Recovers from a step that failed with `status`. OK if the run continues from a checkpoint or
  // from the end of the previous step. `before`: the position when the step began.
  absl::Status RecoverFrom(absl::Status status, const RunPosition& before);

  // RunStep, with its time counted towards the time limit.
  absl::Status TimedStep(int64_t step);
  absl::Status RunStep(int64_t step);
  // Generates batches until dynamic sampling has enough groups; without it, one batch.
  absl::Status GenerateAndScore(StepBatch& batch);
  absl::Status ComputeAllLogProbs(StepBatch& batch);
  // Rollout correction, advantages and the next KL coefficient.
  absl::Status ComputeAllAdvantages(StepBatch& batch);
  std::map<std::string, Histogram> HistogramsOrNone(int64_t step,
                                                    const std::vector<SampleMeta>& metas,
                                                    const std::vector<SampleRecord>& records);
  // Moves the records of the samples that are trained on to `samples`.
  absl::Status RecordSamples(StepBatch& batch, std::vector<SampleRecord>& samples);
  absl::StatusOr<StepRecord> MakeRecord(StepBatch& batch);
  absl::Status Record(StepBatch& batch);
  DiskNeed SamplesNeed() const;
  // Passes all metrics to the operating system; waits for their disk.
  absl::Status FlushMetrics();

  // Whether `status` is only a consequence of stopping the run.
  bool Stopped(const absl::Status& status) const;
  // Restores the groups that the mode of generation carries from step to step from `checkpoint`.
  absl::Status RestoreCarriedGroups(const std::string& checkpoint);

  // Settles the run's length, saves a checkpoint and validates, where it is due after the newest
  // step.
  absl::Status AfterStep();
  absl::Status RestoreLength(const std::string& checkpoint);
  // Informs the control and the user if the run now has fewer steps than `before`.
  void TellIfShortened(int64_t before);
  // Marks records after `step` as undone, in the store and the trackers.
  absl::Status Rewind(int64_t step);
  // An event, if the newest undone row is of a step after `step` that was just marked.
  void TellUndone(int64_t step, const std::vector<StepRecord>& undone);
  absl::Status RewindMetrics(int64_t step);
  absl::Status Finish();

  const StepContext& context_;
  const TrainOptions& options_;
  const RunModes modes_;
  RunControl& control_;
  RunPosition position_;
  Recovery recovery_;
  BatchSaver saver_;
  TrainingPhase training_;
  WeightPhases weights_;
  RunLength length_;
  ValidationSchedule validation_;
  Checkpointer checkpointer_;
  bool consistent_ = true;           // the trainers hold the weights of position_
  bool generation_refused_ = false;  // a checkpoint's generation state does not fit the run
};

}  // namespace tandem
