#include "common/rollout_correction/off_policy_metrics.h"

#include <cmath>

namespace tandem {
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
