// From generated samples to rewards and advantages.
#pragma once

#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/reward/reward_function.h"
#include "controller/sample_store.h"
#include "controller/step_batch.h"
#include "controller/text_codec.h"
#include "controller/train_options.h"

namespace tandem {

// One score per item, in order. Internal: the function gave another number of them; else as
// RewardFunction::Score.
absl::StatusOr<std::vector<RewardScore>> ScoreAll(RewardFunction& reward,
                                                  const std::vector<RewardItem>& items);

// Decodes and scores every sample of the step that has no record yet, and makes the record. Reads
// samples a few hundred at a time.
absl::Status ScoreSamples(const TextCodec& text,
                          RewardFunction& reward,
                          SampleStore& samples,
                          StepBatch& batch);

// The mean of each reward term over the batch's records, into its facts.
void AverageRewardTerms(StepBatch& batch);

// GRPO advantages of every group from the records' rewards, less `kl_coef` times the KL penalty if
// asked for, written to store and records. Sets the metrics kRewardKl and kRewardKlCoef then.
absl::Status ComputeAdvantages(const TrainOptions& options,
                               double kl_coef,
                               SampleStore& samples,
                               StepBatch& batch);

}  // namespace tandem
