// The algorithm: one step after another, as docs/explanation/step.md walks through it.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/generation/generation_mode.h"
#include "controller/run/evaluation.h"
#include "controller/run/placement.h"
#include "controller/run/recovery.h"
#include "controller/run/run_control.h"
#include "controller/run/weight_phases.h"
#include "controller/step/batch_saver.h"
#include "controller/step/run_length.h"
#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"
#include "controller/step/training_phase.h"

namespace tandem {

// How a run does what can be done in several ways; one object for each, never null.
struct RunModes {
  std::unique_ptr<GenerationMode> generation;
  std::unique_ptr<Placement> placement;
};

// Runs on one thread, which alone talks to the context.
class TrainLoop {
 public:
  // `context`, `options` and `control` must outlive the loop. `first_generation` as for Recovery.
  TrainLoop(const StepContext& context,
            const TrainOptions& options,
            RunModes modes,
            RunControl& control,
            int64_t first_generation);

  // From `checkpoint` (empty: from the model) until all steps are done or the control ends it;
  // first makes up for a validation that is missing there;
  // saves a checkpoint at the end if anything was trained since the last one. Any error that a
  // recovery cannot mend is returned, after a last checkpoint of what was finished if possible.
  absl::Status Run(const std::string& checkpoint);

  // Valid inside RunControl::BetweenSteps and after Run.
  const RunPosition& position() const { return position_; }
  const std::string& newest_checkpoint() const { return newest_checkpoint_; }
  // Whether Run failed because model or checkpoint could not be loaded.
  bool failed_loading() const { return recovery_.failed_loading() || generation_refused_; }
  // All steps are done, saved and validated: nothing is left for a next start.
  bool complete() const;
  // As the run is now: its time may have made it shorter.
  int64_t total_steps() const { return length_.total_steps(); }
  absl::StatusOr<EvaluationRecord> EvaluateNow(EvaluationRequest request);

 private:
  absl::Status Train();
  // After a step failed with `status`: OK if the run goes on from a checkpoint, or from the end of
  // the step before. `before`: where the run stood when the step began.
  absl::Status RecoverFrom(absl::Status status, const RunPosition& before);

  // RunStep, with its time counted.
  absl::Status TimedStep(int64_t step);
  // One step and its phases, in order.
  absl::Status RunStep(int64_t step);
  // Batch after batch until dynamic sampling has groups enough; without it one.
  absl::Status GenerateAndScore(StepBatch& batch);
  absl::Status ComputeAllLogProbs(StepBatch& batch);
  // What the batch's samples are worth: rollout correction, advantages, next KL coefficient.
  absl::Status WeighSamples(StepBatch& batch);
  absl::Status Record(StepBatch& batch);

  // Whether something failed only since the run is to end now.
  bool Stopped(const absl::Status& status) const;
  // What generation keeps for later steps, as `checkpoint` has it.
  absl::Status RestoreGeneration(const std::string& checkpoint);

  // Saves and validates, where that is due after the newest step.
  absl::Status AfterStep();
  absl::Status RestoreLength(const std::string& checkpoint);
  // Tells control and user when the run has fewer steps than `before`.
  void TellIfShortened(int64_t before);
  // Whether the validation that follows the newest step is still to come: a run may have died, or
  // lost a worker, between a step's checkpoint and its validation.
  bool ValidationDue() const;
  absl::Status EvaluateAndRecord();
  // Store and trackers forget what was made after `step`.
  absl::Status Rewind(int64_t step);
  absl::Status SaveCheckpoint();
  absl::StatusOr<std::string> CommitCheckpoint(const std::string& directory);
  void ForgetBeforeOldestCheckpoint();
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
  bool consistent_ = true;           // the trainers hold what position_ says
  bool generation_refused_ = false;  // what a checkpoint keeps of generation does not fit
  std::string newest_checkpoint_;
  int64_t saved_step_ = 0;  // of the newest checkpoint
  StepRecord newest_;       // its checkpoint is a phase of it
  std::set<int64_t> evaluated_;
};

}  // namespace tandem
