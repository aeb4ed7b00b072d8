// The advantages of a step: the estimators' inputs, read from sample store and records, and the
// call that computes and stores what the trainers read.
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

// The rewards of a step, which are the same for all estimators.
struct StepRewards {
  std::map<uint64_t, double> by_sample;  // score minus the KL penalty
  double mean_kl = 0;                    // over tokens, then over samples; 0 without kl_in_reward
};

// The inputs of advantage estimators, group by group. Not thread-safe. The references must outlive
// the object.
class AdvantageRows {
 public:
  // `kl_coef` multiplies the KL penalty of a token (used with options.kl_in_reward).
  AdvantageRows(const TrainOptions& options,
                double kl_coef,
                AdvantageNeeds needs,
                const SampleStore& samples,
                const StepBatch& batch);

  // Reads one sample at a time, and no sample without kl_in_reward. Errors as KlOfTokens and Read.
  absl::StatusOr<StepRewards> Rewards() const;

  // The rows of one group, in the order of `members`, with the fields that the estimator's needs
  // name. The score of a response is added at its last trained token: at a token that the mask
  // drops, token-level estimators would never see it. InvalidArgument: a sample lacks a reward key
  // of gdpo (the message lists the keys that it has). Internal: a prompt has no baseline reward.
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

// Writes the reward and advantage of every sample to the store, and the advantage to its record,
// whose reward stays the score. Where the advantages of a sample differ between trained tokens,
// also writes TokenArray::kAdvantages. Adds critic/{advantages,returns}/* over the trained tokens
// to the batch's facts. Reads the arrays of one group at a time, and no arrays for estimators that
// need only scores.
//
// The score of a response is the reward of its last trained token. With use_kl_in_reward, `kl_coef`
// times its KL penalty is subtracted from each token's reward, and the reward of a sample is the
// sum over tokens (verl's apply_kl_penalty). InvalidArgument: a sample lacks a reward key of gdpo,
// or the step has too few tokens to whiten over. Internal: a prompt has no baseline reward; else as
// AdvantageBatch and SampleStore.
absl::Status ComputeAdvantages(const TrainOptions& options,
                               double kl_coef,
                               SampleStore& samples,
                               StepBatch& batch);

}  // namespace tandem
