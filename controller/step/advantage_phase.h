// From scores to the advantages that trainers read: reward penalty, estimator, store.
#pragma once

#include <absl/status/status.h>

#include "controller/step/step_batch.h"
#include "controller/step/train_options.h"
#include "controller/store/sample_store.h"

namespace tandem {

// Writes reward and advantage of every sample to the store, the advantage to its record too (whose
// reward stays the score), TokenArray::kAdvantages where a
// sample's advantages differ between trained tokens, and critic/{advantages,returns}/* over the
// trained tokens to the batch's facts. Reads the arrays of one group at a time, and none at all for
// estimators that need scores alone.
//
// The score sits on the last trained token of a response. With use_kl_in_reward each token's reward
// is less `kl_coef` times its KL penalty, and the reward of a sample is the sum (verl's
// apply_kl_penalty). InvalidArgument: a sample lacks a reward key of gdpo, or the step tokens to
// whiten over. Internal: a prompt lacks its baseline reward; else as AdvantageBatch and
// SampleStore.
absl::Status ComputeAdvantages(const TrainOptions& options,
                               double kl_coef,
                               SampleStore& samples,
                               StepBatch& batch);

}  // namespace tandem
