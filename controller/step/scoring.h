// Rewards of generated samples, from the reward function.
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

// Returns one score per item, in order; all scores and their extras are finite. Internal: the
// function returned another number of scores. Unknown: a NaN or an infinity; the message names
// sample, data row and key. Else as RewardFunction::Score.
absl::StatusOr<std::vector<RewardScore>> ScoreAll(RewardFunction& reward,
                                                  const std::vector<RewardItem>& items);

// Decodes and scores every sample of the step that has no record yet, and adds its record. Reads a
// few hundred samples at a time.
absl::Status RewardSamples(const PromptCodec& text,
                           RewardFunction& reward,
                           SampleStore& samples,
                           StepBatch& batch);

// Writes the mean of each reward term, over those records that have it, to the batch's facts.
void AverageRewardTerms(StepBatch& batch);

}  // namespace tandem
