#include "controller/step/advantage_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "common/base/status_macros.h"
#include "common/types/trained_tokens.h"
#include "controller/algorithm/kl_in_reward.h"

namespace tandem {
namespace {

// As in verl, tokens that the rollout correction rejects pay like the others.
absl::StatusOr<TokenKl> KlOf(const Sample& sample, const std::string& estimator) {
  return KlOfTokens(sample.old_log_probs.empty() ? sample.log_probs : sample.old_log_probs,
                    sample.ref_log_probs, CountedTokens(sample.segments, WindowOf(sample), {}),
                    estimator);
}

}  // namespace

AdvantageRows::AdvantageRows(const TrainOptions& options,
                             double kl_coef,
                             AdvantageNeeds needs,
                             const SampleStore& samples,
                             const StepBatch& batch)
    : options_(options), kl_coef_(kl_coef), needs_(needs), samples_(samples), batch_(batch) {
  for (SampleMeta& meta : samples.Metas()) metas_.emplace(meta.sample_id, std::move(meta));
}

absl::StatusOr<StepRewards> AdvantageRows::Rewards() const {
  StepRewards rewards;
  for (const auto& [id, record] : batch_.records) {
    double reward = record.reward;
    if (options_.kl_in_reward) {
      TANDEM_ASSIGN_OR_RETURN(const Sample sample, samples_.Read(id));
      TANDEM_ASSIGN_OR_RETURN(const TokenKl kl, KlOf(sample, options_.kl_penalty));
      reward -= kl_coef_ * std::accumulate(kl.penalty.begin(), kl.penalty.end(), 0.0);
      rewards.mean_kl += kl.mean;
    }
    rewards.by_sample[id] = reward;
  }
  if (!batch_.records.empty()) rewards.mean_kl /= static_cast<double>(batch_.records.size());
  return rewards;
}

absl::StatusOr<AdvantageGroup> AdvantageRows::Group(const std::vector<const SampleRecord*>& members,
                                                    const StepRewards& rewards) const {
  AdvantageGroup group;
  for (const SampleRecord* record : members) {
    const SampleMeta& meta = Meta(record->sample_id);
    AdvantageRow row{.sample_id = record->sample_id,
                     .tokens = meta.response_tokens,
                     .trained = meta.trained_tokens,
                     .score = static_cast<float>(rewards.by_sample.at(record->sample_id))};
    if (needs_.components) TANDEM_RETURN_IF_ERROR(SetComponents(*record, row));
    if (needs_.baseline) TANDEM_RETURN_IF_ERROR(SetBaseline(*record, row));
    if (needs_.rewards) TANDEM_RETURN_IF_ERROR(SetArrays(*record, row));
    group.push_back(std::move(row));
  }
  return group;
}

absl::Status AdvantageRows::SetComponents(const SampleRecord& record, AdvantageRow& row) const {
  for (const std::string& key : options_.gdpo_reward_keys) {
    const auto found = record.reward_terms.find(key);
    if (found == record.reward_terms.end()) {
      std::vector<std::string> keys;
      for (const auto& [name, value] : record.reward_terms) keys.push_back(name);
      return InvalidArgument(
          "sample {:#x}: its reward has no key {} that algorithm.gdpo_reward_keys names; there are "
          "{}",
          record.sample_id, key, keys.empty() ? "none" : fmt::format("{}", fmt::join(keys, ", ")));
    }
    row.components.push_back(static_cast<float>(found->second));
  }
  return absl::OkStatus();
}

absl::Status AdvantageRows::SetBaseline(const SampleRecord& record, AdvantageRow& row) const {
  const auto found = batch_.baseline_rewards.find(record.group);
  if (found == batch_.baseline_rewards.end()) {
    return Internal("{} needs the reward of a greedy response, and prompt {} has none",
                    options_.adv_estimator, record.group);
  }
  row.baseline = found->second;
  return absl::OkStatus();
}

absl::Status AdvantageRows::SetArrays(const SampleRecord& record, AdvantageRow& row) const {
  TANDEM_ASSIGN_OR_RETURN(Sample sample, samples_.Read(row.sample_id));
  row.mask = CountedTokens(sample);
  row.trained = std::count(row.mask.begin(), row.mask.end(), 1.0f);
  TANDEM_RETURN_IF_ERROR(SetTokenRewards(sample, record.reward, row));
  if (!needs_.policy) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(row.sum_pi_squared,
                          samples_.ReadArray(TokenArray::kSumPiSquared, row.sample_id));
  row.is_weights = std::move(sample.is_weights);
  row.log_probs = std::move(sample.old_log_probs.empty() ? sample.log_probs : sample.old_log_probs);
  return absl::OkStatus();
}

absl::Status AdvantageRows::SetTokenRewards(const Sample& sample,
                                            double score,
                                            AdvantageRow& row) const {
  row.rewards.assign(static_cast<size_t>(row.tokens), 0.0f);
  if (options_.kl_in_reward) {
    TANDEM_ASSIGN_OR_RETURN(const TokenKl kl, KlOf(sample, options_.kl_penalty));
    for (size_t t = 0; t < kl.penalty.size(); ++t) {
      row.rewards[t] = static_cast<float>(-kl_coef_ * kl.penalty[t]);
    }
  }
  for (size_t t = row.rewards.size(); t-- > 0;) {
    if (row.mask[t] == 0) continue;
    row.rewards[t] = static_cast<float>(score + static_cast<double>(row.rewards[t]));
    break;
  }
  return absl::OkStatus();
}

}  // namespace tandem
