// How far the policy that is trained lies from the one that sampled.
#pragma once

#include <map>
#include <string>

#include "common/rollout_correction/log_prob_row.h"
#include "common/rollout_correction/moments.h"

namespace tandem {

// kl (mean of log rollout - log policy), k3_kl, perplexities of both and their difference and
// ratio, chi2_token and chi2_seq (mean of squared ratios, less 1). Perplexities are of responses,
// exp of minus the mean log-prob, and their mean is over responses, an empty one counting as 1, as
// in verl. Sums in double, in the order of Observe. Not thread-safe.
class OffPolicyMetrics {
 public:
  void Observe(const LogProbRow& row);

  double tokens() const { return tokens_; }
  // Some token counted.
  void AddMetrics(std::map<std::string, double>& metrics) const;

 private:
  double tokens_ = 0, kl_ = 0, k3_ = 0, squared_ratios_ = 0;
  Moments policy_perplexity_, policy_log_, rollout_perplexity_, rollout_log_;
  Moments log_difference_, abs_log_difference_, perplexity_ratio_, squared_sequence_ratio_;
};

}  // namespace tandem
