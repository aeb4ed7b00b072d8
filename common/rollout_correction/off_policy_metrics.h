// Compares the probabilities that rollout and trainer give to the same tokens: the numbers by which
// a mismatch of the two is usually judged.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/rollout_correction/log_prob_row.h"

namespace tandem {

// Running means and products of deviations (Welford), which can be joined over ranks and
// micro-batches. Doubles without padding, because they are sent in a message. Formulas: verl 0.9.1
// (debug/metrics.py); the correlation: MiniMax-M1 (arXiv:2506.13585).
struct ProbabilityComparison {
  double tokens = 0;
  double policy_mean = 0, policy_squares = 0;    // of e^log-prob
  double rollout_mean = 0, rollout_squares = 0;  // squares: sums of (x - mean)^2
  double products = 0;                           // sum of (x - mean x) (y - mean y)
  double difference_mean = 0, difference_squares = 0, difference_max = 0;  // of |x - y|

  void Add(float policy_log_prob, float rollout_log_prob);
  // Adds the tokens of the row that count.
  void Add(const LogProbRow& row);
  // T. F. Chan, G. H. Golub, R. J. LeVeque, Updating formulae and a pairwise algorithm (1979).
  void Join(const ProbabilityComparison& other);

  // training/rollout_probs_diff_{valid,max,mean,std} and training/rollout_actor_probs_pearson_corr.
  // valid 0 and the rest NaN over no token. The deviation of one token, and the correlation where
  // one side never changes, are NaN.
  std::map<std::string, double> Metrics() const;
};

// The distance of the trained policy from the one that sampled. kl (mean of log rollout - log
// policy), k3_kl, perplexities of both and their difference and ratio, chi2_token and chi2_seq
// (mean of squared ratios, less 1). Perplexities are of responses, exp of minus the mean log-prob,
// and their mean is over responses, an empty one counting as 1, as in verl. Sums in double, in the
// order of Observe. Not thread-safe.
class OffPolicyMetrics {
 public:
  void Observe(const LogProbRow& row);

  double tokens() const { return tokens_; }
  // Adds the metrics; at least one token must count.
  void AddMetrics(std::map<std::string, double>& metrics) const;

 private:
  double tokens_ = 0, kl_ = 0, k3_ = 0, squared_ratios_ = 0;
  Moments policy_perplexity_, policy_log_, rollout_perplexity_, rollout_log_;
  Moments log_difference_, abs_log_difference_, perplexity_ratio_, squared_sequence_ratio_;
};

}  // namespace tandem
