// Trains on a step's batch: forward, backward and update for every mini-batch, and the comparison
// of log-probs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "controller/step/batch_saver.h"
#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"
#include "controller/workers/trainer_client.h"

namespace tandem {

class TrainingPhase {
 public:
  // All must outlive it. `position`: its weight version rises with every update, its count of
  // skipped ones follows.
  TrainingPhase(const StepContext& context,
                const TrainOptions& options,
                RunPosition* position,
                BatchSaver& saver)
      : context_(context), options_(options), position_(*position), saver_(saver) {}

  // Cancelled: interrupted before the weights changed. DataLoss, with the step saved: log-probs of
  // rollout and trainer differ, or too many updates in a row had no finite gradient norm.
  // InvalidArgument: the rollout correction rejected every token of the step. Else as
  // OnAllTrainers.
  absl::Status Run(StepBatch& batch);

 private:
  void SkipMiniBatches(StepBatch& batch, int64_t mini_batches);
  // `share`: of one mini-batch in the step's metrics.
  absl::Status ForwardBackward(StepBatch& batch,
                               double share,
                               const ForwardBackwardCommand& command);
  absl::Status OptimizerStep(StepBatch& batch, double share);
  absl::Status CompareLogProbs(StepBatch& batch, const std::vector<ForwardBackwardResult>& results);
  // Counts an update that the trainers skipped; DataLoss, with the step saved, where it was one too
  // many.
  absl::Status RecordSkippedUpdate(StepBatch& batch, const OptimizerStepResult& result);
  // Counts an update of a mini-batch whose every token bypass mode rejected; InvalidArgument,
  // before its optimizer step, where it is the last of a step of no others.
  absl::Status CountRejected(StepBatch& batch,
                             const std::map<std::string, double>& metrics,
                             int64_t updates);
  void TellOfRejected(const StepBatch& batch, int64_t updates);

  const StepContext& context_;
  const TrainOptions& options_;
  RunPosition& position_;
  BatchSaver& saver_;
};

// Makes all trainers compute log-probs of the step's samples under `policy`, as the phase that is
// running.
absl::Status ComputeLogProbs(WorkerPool& pool, LogProbPolicy policy, StepBatch& batch);

// Cancelled when a stop does not wait for the end of the step.
absl::Status CheckInterrupted(const StepContext& context);

}  // namespace tandem
