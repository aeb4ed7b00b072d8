// The rollout correction of a step: between the trainers' log-probs and the advantages, as in verl,
// so that estimators which look at the mask see what will be trained.
#pragma once

#include <map>
#include <string>

#include <absl/status/status.h>

#include "controller/step/step_batch.h"
#include "controller/step/train_options.h"
#include "controller/store/sample_store.h"

namespace tandem {

// Where the trainers have recomputed log-probs and the rollout's are there too: their metrics
// (rollout_corr/*; of tokens of batch.version training/rollout_probs_diff_* and
// training/rollout_actor_probs_pearson_corr, of older ones partial/stale_probs_diff_*) to
// batch.facts, importance weights to TokenArray::kIsWeights and rejections to TokenArray::kMask, as
// the options ask. Else nothing. Sample by sample, in order of id, twice where there is something
// to write. FailedPrecondition: every token of the step was rejected.
absl::Status CorrectRollout(const TrainOptions& options, SampleStore& samples, StepBatch& batch);

// Without what is not finite: the spread of a single token, the correlation of constants.
void AddFinite(const std::map<std::string, double>& metrics, StepFacts& facts);

}  // namespace tandem
