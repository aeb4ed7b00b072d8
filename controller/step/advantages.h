// What advantage estimators read of a step's samples, group by group from store and records.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/algorithm/advantage_estimator.h"
#include "controller/step/step_batch.h"
#include "controller/step/train_options.h"
#include "controller/store/sample_store.h"

namespace tandem {

// The numbers of a step that no estimator changes.
struct StepRewards {
  std::map<uint64_t, double> by_sample;  // score less the KL penalty
  double mean_kl = 0;                    // over tokens, then over samples; 0 without kl_in_reward
};

// Not thread-safe. The references must outlive it.
class AdvantageRows {
 public:
  // `kl_coef`: what the KL penalty of a token costs it, with options.kl_in_reward.
  AdvantageRows(const TrainOptions& options,
                double kl_coef,
                AdvantageNeeds needs,
                const SampleStore& samples,
                const StepBatch& batch);

  // Reads the samples one at a time, and none without kl_in_reward. Errors as KlOfTokens and Read.
  absl::StatusOr<StepRewards> Rewards() const;

  // The rows of one group, in the order of `members`, with what the needs name. The score of a
  // response sits on its last trained token: on a token that the mask drops it would be lost to
  // every estimator that looks at tokens. FailedPrecondition: a sample lacks a reward key of gdpo
  // (lists those there are), or a prompt its baseline reward.
  absl::StatusOr<AdvantageGroup> Group(const std::vector<const SampleRecord*>& members,
                                       const StepRewards& rewards) const;

  const SampleMeta& Meta(uint64_t sample_id) const { return metas_.at(sample_id); }

 private:
  absl::Status SetComponents(const SampleRecord& record, AdvantageRow& row) const;
  absl::Status SetBaseline(const SampleRecord& record, AdvantageRow& row) const;
  absl::Status SetArrays(const SampleRecord& record, AdvantageRow& row) const;
  absl::Status SetTokenRewards(const Sample& sample, double score, AdvantageRow& row) const;

  const TrainOptions& options_;
  const double kl_coef_;
  const AdvantageNeeds needs_;
  const SampleStore& samples_;
  const StepBatch& batch_;
  std::map<uint64_t, SampleMeta> metas_;
};

// From scores to the advantages that trainers read: reward penalty, estimator, store.

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
