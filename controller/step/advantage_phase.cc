#include "controller/step/advantage_phase.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "controller/algorithm/advantage_batch.h"
#include "controller/step/advantage_rows.h"
#include "controller/store/metric_names.h"

namespace tandem {
namespace {

using Members = std::vector<const SampleRecord*>;  // of one group, in order of sample id

// Over the trained tokens of a step, in order of sample id.
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
    // By the id of the first member, which is the order of the records.
    std::map<int64_t, size_t> places;
    for (auto& [id, record] : batch.records) {
      const auto [place, fresh] = places.try_emplace(record.group, groups_.size());
      if (fresh) groups_.emplace_back();
      groups_[place->second].push_back(&record);
    }
  }

  // The mean KL penalty.
  absl::StatusOr<double> Run() {
    TANDEM_ASSIGN_OR_RETURN(rewards_, rows_.Rewards());
    for (const auto& [id, reward] : rewards_.by_sample) step_.AddScore(static_cast<float>(reward));
    if (step_.whitens()) {
      for (const Members& members : groups_) {
        TANDEM_ASSIGN_OR_RETURN(const AdvantageGroup group, rows_.Group(members, rewards_));
        TANDEM_RETURN_IF_ERROR(step_.Observe(group));
      }
      TANDEM_RETURN_IF_ERROR(step_.Settle());
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
    double advantage = static_cast<float>(result.value);
    if (!tokens.empty()) advantage = differ ? sum / static_cast<double>(trained) : first;
    if (tokens.empty()) advantages_.Add(advantage, static_cast<double>(row.trained));
    AddReturns(row, result, advantage);
    batch_.records.at(member.sample_id).advantage = advantage;
    samples_.SetOutcome(member.sample_id, {.score = member.reward,
                                           .reward = rewards_.by_sample.at(member.sample_id),
                                           .advantage = advantage});
    // An array of an earlier attempt would hide the number.
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
