#include "controller/step/advantages.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/base/status.h"
#include "common/types/response_tokens.h"
#include "controller/algorithm/advantage_batch.h"
#include "controller/algorithm/kl_penalty.h"
#include "controller/store/run_store.h"

namespace tandem {
namespace {

// As in verl, tokens that the rollout correction rejects count in the KL penalty as well.
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

namespace {

using Members = std::vector<const SampleRecord*>;  // of one group, in order of sample id

// Mean, maximum and minimum of a value over the trained tokens of a step, added in order of sample
// id.
class TokenStatistics {
 public:
  void Add(double value, double tokens) {
    if (tokens <= 0) return;
    low_ = count_ == 0 ? value : std::min(low_, value);
    high_ = count_ == 0 ? value : std::max(high_, value);
    count_ += tokens;
    sum_ += value * tokens;
  }
  void Write(const std::string& name, std::map<std::string, double>& metrics) const {
    if (count_ == 0) return;
    metrics[name + "/mean"] = sum_ / count_;
    metrics[name + "/max"] = high_;
    metrics[name + "/min"] = low_;
  }

 private:
  double count_ = 0, sum_ = 0, low_ = 0, high_ = 0;
};

class AdvantagePhase {
 public:
  AdvantagePhase(const TrainOptions& options,
                 double kl_coef,
                 const AdvantageEstimator& estimator,
                 SampleStore& samples,
                 StepBatch& batch)
      : rows_(options, kl_coef, estimator.needs, samples, batch),
        step_(estimator, options.advantage),
        samples_(samples),
        batch_(batch) {
    // Groups are ordered by the id of their first member, as the records are.
    std::map<int64_t, size_t> places;
    for (auto& [id, record] : batch.records) {
      const auto [place, fresh] = places.try_emplace(record.group, groups_.size());
      if (fresh) groups_.emplace_back();
      groups_[place->second].push_back(&record);
    }
  }

  // Returns the mean KL penalty.
  absl::StatusOr<double> Run() {
    TANDEM_ASSIGN_OR_RETURN(rewards_, rows_.Rewards());
    for (const auto& [id, reward] : rewards_.by_sample) step_.AddScore(static_cast<float>(reward));
    if (step_.whitens()) {
      for (const Members& members : groups_) {
        TANDEM_ASSIGN_OR_RETURN(const AdvantageGroup group, rows_.Group(members, rewards_));
        TANDEM_RETURN_IF_ERROR(step_.Observe(group));
      }
      TANDEM_RETURN_IF_ERROR(step_.FinishObserving());
    }
    for (const Members& members : groups_) {
      TANDEM_ASSIGN_OR_RETURN(const AdvantageGroup group, rows_.Group(members, rewards_));
      TANDEM_ASSIGN_OR_RETURN(const std::vector<RowAdvantage> results, step_.Compute(group));
      for (size_t i = 0; i < members.size(); ++i) {
        TANDEM_RETURN_IF_ERROR(Put(*members[i], group[i], results[i]));
      }
    }
    advantages_.Write("critic/advantages", batch_.facts.trainer);
    returns_.Write("critic/returns", batch_.facts.trainer);
    return rewards_.mean_kl;
  }

 private:
  absl::Status Put(const SampleRecord& member,
                   const AdvantageRow& row,
                   const RowAdvantage& result) {
    std::vector<float> tokens(result.tokens.begin(), result.tokens.end());
    double sum = 0;
    bool differ = false;
    float first = 0;
    int64_t trained = 0;
    for (size_t t = 0; t < tokens.size(); ++t) {
      if (row.mask[t] == 0) continue;
      if (trained++ == 0) first = tokens[t];
      differ = differ || tokens[t] != first;
      sum += tokens[t];
      advantages_.Add(tokens[t], 1);
    }
    // opo has no number for a group without trained tokens. No token would get it, but in a loss
    // not even a mask of 0 takes away a NaN.
    const bool undefined = row.trained == 0 && !std::isfinite(result.value);
    double advantage = undefined ? 0.0 : static_cast<float>(result.value);
    if (!tokens.empty()) advantage = differ ? sum / static_cast<double>(trained) : first;
    if (tokens.empty()) advantages_.Add(advantage, static_cast<double>(row.trained));
    AddReturns(row, result, advantage);
    batch_.records.at(member.sample_id).advantage = advantage;
    samples_.SetOutcome(member.sample_id, {.score = member.reward,
                                           .reward = rewards_.by_sample.at(member.sample_id),
                                           .advantage = advantage});
    // A per-token array from an earlier attempt of the step would take precedence over the scalar.
    const bool hidden = rows_.Meta(member.sample_id).arrays.of(TokenArray::kAdvantages) >= 0;
    if (!differ && !hidden) return absl::OkStatus();
    if (!differ) tokens.assign(static_cast<size_t>(row.tokens), static_cast<float>(advantage));
    return samples_.PutArray(batch_.step, TokenArray::kAdvantages, member.sample_id, tokens);
  }

  void AddReturns(const AdvantageRow& row, const RowAdvantage& result, double advantage) {
    const std::vector<double>& tokens = result.returns.empty() ? result.tokens : result.returns;
    if (tokens.empty()) returns_.Add(advantage, static_cast<double>(row.trained));
    for (size_t t = 0; t < tokens.size(); ++t) {
      if (row.mask[t] != 0) returns_.Add(tokens[t], 1);
    }
  }

  AdvantageRows rows_;
  AdvantageBatch step_;
  SampleStore& samples_;
  StepBatch& batch_;
  std::vector<Members> groups_;
  StepRewards rewards_;
  TokenStatistics advantages_, returns_;
};

}  // namespace

absl::Status ComputeAdvantages(const TrainOptions& options,
                               double kl_coef,
                               SampleStore& samples,
                               StepBatch& batch) {
  TANDEM_ASSIGN_OR_RETURN(const AdvantageEstimator estimator,
                          FindAdvantageEstimator(options.adv_estimator));
  AdvantagePhase phase(options, kl_coef, estimator, samples, batch);
  TANDEM_ASSIGN_OR_RETURN(const double mean_kl, phase.Run());
  if (options.kl_in_reward) {
    batch.facts.trainer[kRewardKl] = mean_kl;
    batch.facts.trainer[kRewardKlCoef] = kl_coef;
  }
  return absl::OkStatus();
}

}  // namespace tandem
