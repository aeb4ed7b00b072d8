// What a reward function is told of a response.
#pragma once

#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/types/sample.h"
#include "controller/data/prompt.h"
#include "controller/reward/reward_function.h"
#include "controller/step/step_batch.h"
#include "controller/store/sample_store.h"

namespace tandem {

RewardItem MakeRewardItem(const PromptCodec& text, const Prompt& prompt, const Sample& sample);

// From generated samples to rewards.

// One score per item, in order, all of them and their extras finite. Internal: the function gave
// another number of them; Unknown: a NaN or an infinity, with sample, data row and key; else as
// RewardFunction::Score.
absl::StatusOr<std::vector<RewardScore>> ScoreAll(RewardFunction& reward,
                                                  const std::vector<RewardItem>& items);

// Decodes and scores every sample of the step that has no record yet, and makes the record. Reads
// samples a few hundred at a time.
absl::Status ScoreSamples(const PromptCodec& text,
                          RewardFunction& reward,
                          SampleStore& samples,
                          StepBatch& batch);

// The mean of each reward term over those of the batch's records that have it, into its facts.
void AverageRewardTerms(StepBatch& batch);

}  // namespace tandem
