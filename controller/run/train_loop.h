// The algorithm: one step after another, as docs/explanation/step.md walks through it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "controller/generation/background_generation.h"
#include "controller/run/evaluation.h"
#include "controller/run/recovery.h"
#include "controller/run/run_control.h"
#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"
#include "controller/store/saved_batch.h"

namespace tandem {

// Runs on one thread, which alone talks to the parts.
class TrainLoop {
 public:
  TrainLoop(RunParts parts, TrainOptions options, RunControl& control, int64_t first_generation);

  // From `checkpoint` (empty: from the model) until all steps are done or the control ends it;
  // first makes up for a validation that is missing there;
  // saves a checkpoint at the end if anything was trained since the last one. Any error that a
  // recovery cannot mend is returned, after a last checkpoint of what was finished if possible.
  absl::Status Run(const std::string& checkpoint);

  // How rollouts sleep, where that is known only after the loop was made; before Run.
  void SleepAs(SleepMode mode) { options_.sleep = mode; }

  // Valid inside RunControl::BetweenSteps and after Run.
  const RunPosition& position() const { return position_; }
  const std::string& newest_checkpoint() const { return newest_checkpoint_; }
  // Whether Run failed because model or checkpoint could not be loaded.
  bool failed_loading() const { return recovery_.failed_loading() || pool_refused_; }
  // All steps are done, saved and validated: nothing is left for a next start.
  bool complete() const;
  // As the run is now: its time may have made it shorter.
  int64_t total_steps() const { return options_.total_steps; }
  absl::StatusOr<EvaluationRecord> EvaluateNow(EvaluationRequest request);

 private:
  absl::Status Train();

  // RunStep, with its time counted.
  absl::Status TimedStep(int64_t step);
  // One step and its phases, in order.
  absl::Status RunStep(int64_t step);
  absl::Status VerifyWeights(StepBatch& batch);
  absl::StatusOr<std::vector<Prompt>> DrawPrompts(int64_t count);
  // Batch after batch until dynamic sampling has groups enough; without it one.
  absl::Status GenerateAndScore(StepBatch& batch);
  // Of the prompts from `first` on.
  absl::Status Generate(StepBatch& batch, size_t first);
  // With partial rollout: rounds until the pool has a batch, which it gives away.
  absl::Status GenerateByRounds(StepBatch& batch, int64_t missing);
  // One round, `groups` besides.
  absl::Status RunRound(StepBatch& batch, std::vector<GroupRequest> groups);
  absl::Status ServeRound(StepBatch& batch, std::vector<GroupRequest> groups);
  // With overlap: what has tokens of this version or an older one is to be trained in this step.
  int64_t DueVersion() const;
  // Null where nothing is generated while the trainers train.
  std::unique_ptr<Overlap> BeginOverlap(const StepBatch& batch);
  // Then the rollouts sleep. What went wrong in generation for later batches does not undo this
  // one: its error is for the end of the step, unless a worker was lost.
  absl::Status EndOverlap(Overlap& overlap, StepBatch& batch);
  void SleepForSync(StepBatch& batch);
  absl::Status TakeFromPool(StepBatch& batch, int64_t wanted);
  // The pool of carried groups as `checkpoint` has it (empty: none); nothing without partial
  // rollout.
  absl::Status RestorePool(const std::string& checkpoint);
  // The probe for rollouts in another life than that which made it.
  std::vector<GroupRequest> ProbeAgain(const std::vector<int>& ranks);
  absl::Status SleepRollouts(StepBatch& batch);
  absl::Status CompareProbe(StepBatch& batch);
  absl::Status ComputeLogProbs(StepBatch& batch);
  absl::Status TrainOnBatch(StepBatch& batch);
  absl::Status SyncWeights(StepBatch& batch);
  absl::Status Record(StepBatch& batch);

  void LeaveOut(StepBatch& batch, int64_t mini_batches);
  // Whether something failed only since the run is to end now.
  bool Stopped(const absl::Status& status) const;
  // Cancelled when a stop does not wait for the end of the step.
  absl::Status CheckInterrupted() const;
  // What the trainers make of samples under `policy`, as the phase that is running.
  absl::Status ComputeLogProbs(StepBatch& batch, LogProbPolicy policy);
  // `share`: of one mini-batch in the step's metrics.
  absl::Status ForwardBackward(StepBatch& batch,
                               double share,
                               const ForwardBackwardCommand& command);
  absl::Status OptimizerStep(StepBatch& batch, double share);
  // Counts an update that was left out; DataLoss, with the step saved, where it was one too many.
  absl::Status CountSkipped(StepBatch& batch, const OptimizerStepResult& result);
  // Counts an update of a mini-batch whose every token bypass mode rejected; InvalidArgument,
  // before its optimizer step, where it is the last of a step of no others.
  absl::Status CountRejected(StepBatch& batch,
                             const std::map<std::string, double>& metrics,
                             int64_t updates);
  void TellOfRejected(const StepBatch& batch, int64_t updates);
  // Saves the step that a failure ends the run with. Says where it is, or why it is not.
  std::string SaveFailedStep(const StepBatch& batch, const std::string& failure);
  absl::Status SaveFailedStep(const StepBatch& batch,
                              const std::string& folder,
                              const std::string& failure);
  // `status`; a ratio or log-prob that is not what it must be (DataLoss) with its step saved.
  absl::Status WithStepSaved(const StepBatch& batch, const absl::Status& status);
  // `status`, which is none of OK, with its step saved; `what` else is in the file, "" for nothing.
  absl::Status SavedWith(const StepBatch& batch,
                         const absl::Status& status,
                         const std::string& what);
  // By trainer.save_batch_freq. A full disk is told, and no error.
  absl::Status SaveDueBatch(const StepBatch& batch);
  SavedBatchInfo BatchInfoOf(const StepBatch& batch) const;
  absl::Status CompareLogProbs(StepBatch& batch, const std::vector<ForwardBackwardResult>& results);
  absl::Status AfterStep();
  // Settles by the first steps of this process how long a run is whose time is bounded.
  void SettleLength();
  // As an earlier process settled it, by `checkpoint` (empty: none).
  absl::Status RestoreLength(const std::string& checkpoint);
  // The run has these steps from now on; no more than it had.
  void Shorten(int64_t steps);
  // Whether the validation that follows the newest step is still to come: a run may have died, or
  // lost a worker, between a step's checkpoint and its validation.
  bool ValidationDue() const;
  absl::Status EvaluateAndRecord();
  // Store and trackers forget what was made after `step`.
  absl::Status Rewind(int64_t step);
  absl::Status SaveCheckpoint();
  absl::Status Finish();

  RunParts parts_;
  TrainOptions options_;
  RunControl& control_;
  Recovery recovery_;
  RunPosition position_;
  bool consistent_ = true;  // the trainers hold what position_ says
  bool pool_refused_ = false;
  std::string newest_checkpoint_;
  int64_t saved_step_ = 0;  // of the newest checkpoint
  StepRecord newest_;       // its checkpoint is a phase of it
  std::set<int64_t> evaluated_;
  bool length_settled_ = false;
  int64_t own_steps_ = 0;           // of this process
  absl::Duration step_time_;        // of the newest of them
  absl::Duration validation_time_;  // of the newest validation
  absl::Duration spent_;            // on steps and validations of this process
};

}  // namespace tandem
