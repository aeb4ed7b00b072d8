#include "common/rollout_correction/off_policy_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem {

void ProbabilityComparison::Add(float policy_log_prob, float rollout_log_prob) {
  const float policy = RoundedExp(policy_log_prob), rollout = RoundedExp(rollout_log_prob);
  tokens += 1;
  const double dx = policy - policy_mean, dy = rollout - rollout_mean;
  policy_mean += dx / tokens;
  rollout_mean += dy / tokens;
  policy_squares += dx * (policy - policy_mean);
  rollout_squares += dy * (rollout - rollout_mean);
  products += dx * (rollout - rollout_mean);
  const double difference = std::abs(policy - rollout);
  const double dz = difference - difference_mean;
  difference_mean += dz / tokens;
  difference_squares += dz * (difference - difference_mean);
  difference_max = std::max(difference_max, difference);
}

void ProbabilityComparison::Add(const LogProbRow& row) {
  for (size_t t = 0; t < row.size(); ++t) {
    if (row.counts(t)) Add(row.policy[t], row.rollout[t]);
  }
}

void ProbabilityComparison::Join(const ProbabilityComparison& other) {
  if (other.tokens == 0) return;
  const double all = tokens + other.tokens;
  const double share = other.tokens / all, weight = tokens * share;
  const double dx = other.policy_mean - policy_mean, dy = other.rollout_mean - rollout_mean;
  const double dz = other.difference_mean - difference_mean;
  policy_mean += dx * share;
  rollout_mean += dy * share;
  difference_mean += dz * share;
  policy_squares += other.policy_squares + dx * dx * weight;
  rollout_squares += other.rollout_squares + dy * dy * weight;
  products += other.products + dx * dy * weight;
  difference_squares += other.difference_squares + dz * dz * weight;
  difference_max = std::max(difference_max, other.difference_max);
  tokens = all;
}

std::map<std::string, double> ProbabilityComparison::Metrics() const {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const double spread = std::sqrt(policy_squares) * std::sqrt(rollout_squares);
  const double correlation = spread > 0 ? std::clamp(products / spread, -1.0, 1.0) : kNan;
  const bool valid = tokens > 0;
  return {{"training/rollout_probs_diff_valid", valid ? 1 : 0},
          {"training/rollout_probs_diff_max", valid ? difference_max : kNan},
          {"training/rollout_probs_diff_mean", valid ? difference_mean : kNan},
          {"training/rollout_probs_diff_std",
           tokens > 1 ? std::sqrt(difference_squares / (tokens - 1)) : kNan},
          {"training/rollout_actor_probs_pearson_corr", correlation}};
}

namespace {

float Square(float x) { return x * x; }

}  // namespace

void OffPolicyMetrics::Observe(const LogProbRow& row) {
  double tokens = 0, policy = 0, rollout = 0, log_ratios = 0;
  for (size_t t = 0; t < row.size(); ++t) {
    if (!row.counts(t)) continue;
    const float d = row.log_ratio(t);
    tokens += 1;
    policy += row.policy[t];
    rollout += row.rollout[t];
    log_ratios += d;
    kl_ -= d;
    k3_ += RoundedExp(d) - d - 1.0f;
    squared_ratios_ += Square(RoundedExp(ClampLogRatio(d)));
  }
  tokens_ += tokens;
  const auto policy_mean = static_cast<float>(MeanOf(policy, tokens));
  const auto rollout_mean = static_cast<float>(MeanOf(rollout, tokens));
  const float difference = rollout_mean - policy_mean;
  policy_perplexity_.Add(RoundedExp(-policy_mean));
  policy_log_.Add(-policy_mean);
  rollout_perplexity_.Add(RoundedExp(-rollout_mean));
  rollout_log_.Add(-rollout_mean);
  log_difference_.Add(difference);
  abs_log_difference_.Add(std::abs(difference));
  perplexity_ratio_.Add(RoundedExp(difference));
  squared_sequence_ratio_.Add(RoundedExp(2 * ClampLogRatio(static_cast<float>(log_ratios))));
}

void OffPolicyMetrics::AddMetrics(std::map<std::string, double>& metrics) const {
  metrics["training_ppl"] = policy_perplexity_.mean;
  metrics["training_log_ppl"] = policy_log_.mean;
  metrics["kl"] = MeanOf(kl_, tokens_);
  metrics["k3_kl"] = MeanOf(k3_, tokens_);
  metrics["rollout_ppl"] = rollout_perplexity_.mean;
  metrics["rollout_log_ppl"] = rollout_log_.mean;
  metrics["log_ppl_diff"] = log_difference_.mean;
  metrics["log_ppl_abs_diff"] = abs_log_difference_.mean;
  metrics["log_ppl_diff_max"] = log_difference_.max;
  metrics["log_ppl_diff_min"] = log_difference_.min;
  metrics["ppl_ratio"] = perplexity_ratio_.mean;
  metrics["chi2_token"] = MeanOf(squared_ratios_, tokens_) - 1;
  metrics["chi2_seq"] = squared_sequence_ratio_.mean - 1;
}

}  // namespace tandem
