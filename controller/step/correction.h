// The rollout correction of a step. It runs between the trainers' log-probs and the advantages, as
// in verl, so that estimators that use the mask see the tokens that will be trained.
#pragma once

#include <map>
#include <string>

#include <absl/status/status.h>

#include "controller/step/step_batch.h"
#include "controller/step/train_options.h"
#include "controller/store/sample_store.h"

namespace tandem {

// Does nothing unless samples have both the log-probs that the trainers recomputed and the
// rollout's. Then adds their metrics to batch.facts (rollout_corr/*; training/rollout_probs_diff_*
// and training/rollout_actor_probs_pearson_corr over tokens of batch.version,
// partial/stale_probs_diff_* over older ones). Where the options ask for it, writes importance
// weights to TokenArray::kIsWeights and rejections to TokenArray::kMask. Reads sample by sample in
// order of id, twice where there is something to write. InvalidArgument: every token of the step
// was rejected.
absl::Status CorrectRollout(const TrainOptions& options, SampleStore& samples, StepBatch& batch);

// Skips values that are not finite: the spread of a single token, the correlation of constants.
void AddFinite(const std::map<std::string, double>& metrics, StepFacts& facts);

}  // namespace tandem
