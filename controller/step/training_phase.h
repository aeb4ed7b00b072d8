// Trains on a step's batch: forward, backward and optimizer step for every mini-batch, and the
// comparison of log-probs between rollout and trainer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/step/batch_saver.h"
#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"
#include "controller/store/sample_store.h"
#include "controller/workers/trainer_client.h"

namespace tandem {

class TrainingPhase {
 public:
  // Called before the first update of a step. Returns samples of the next step that the present
  // weights generated, which are compared with them, or null.
  using BeforeUpdate = std::function<absl::StatusOr<SampleStore*>(StepBatch& batch)>;

  // All arguments must outlive the phase, which raises the weight version in `position` with every
  // update and maintains its count of skipped updates.
  TrainingPhase(const StepContext& context,
                const TrainOptions& options,
                RunPosition* position,
                BatchSaver& saver,
                BeforeUpdate before_update)
      : context_(context),
        options_(options),
        position_(*position),
        saver_(saver),
        before_update_(std::move(before_update)) {}

  // Cancelled: interrupted before the weights changed. DataLoss, with the step saved: log-probs of
  // rollout and trainer differ or were not all compared, or too many consecutive updates had no
  // finite gradient norm.
  // InvalidArgument: the rollout correction rejected every token of the step. Else as
  // CallAllTrainers.
  absl::Status Run(StepBatch& batch);

 private:
  void SkipMiniBatches(StepBatch& batch, int64_t mini_batches);
  // `share`: of one mini-batch in the step's metrics.
  absl::Status ForwardBackward(StepBatch& batch, double share, const ForwardBackwardCall& command);
  absl::Status OptimizerStep(StepBatch& batch, double share);
  // Compares all of the batch before its first update, with a scoring pass if there was none and
  // the first mini-batch is only a part of the batch. Else the first mini-batch's training pass
  // compares.
  absl::Status CompareBatch(StepBatch& batch);
  // Compares all that the present weights have generated for the next step.
  absl::Status CompareUpcoming(StepBatch& batch);
  // `expected`: the number of tokens that the ranks should have compared. `step` trains them.
  absl::Status CompareLogProbs(StepBatch& batch,
                               const std::vector<ReportedComparison>& results,
                               int64_t expected,
                               int64_t step);
  // Counts an update that the trainers skipped. DataLoss, with the step saved: max_skipped_steps
  // updates in a row were skipped.
  absl::Status RecordSkippedUpdate(StepBatch& batch, const OptimizerStepReply& result);
  // Counts an update of a mini-batch whose every token was rejected in bypass mode.
  // InvalidArgument, before its optimizer step: all mini-batches of the step were rejected so.
  absl::Status CountRejected(StepBatch& batch,
                             const std::map<std::string, double>& metrics,
                             int64_t updates);
  void ReportRejectedUpdates(const StepBatch& batch, int64_t updates);

  const StepContext& context_;
  const TrainOptions& options_;
  RunPosition& position_;
  BatchSaver& saver_;
  const BeforeUpdate before_update_;
};

// Makes all trainers compute log-probs of the samples of `step`, which is the batch's or the next
// one, under `policy`, within the running phase. Returns their comparisons with the rollout, by
// rank.
absl::StatusOr<std::vector<ReportedComparison>> ComputeLogProbs(WorkerPool& pool,
                                                                ScoredPolicy policy,
                                                                int64_t step,
                                                                StepBatch& batch);

// Cancelled: the run is to stop without waiting for the end of the step.
absl::Status CheckInterrupted(const StepContext& context);

}  // namespace tandem
