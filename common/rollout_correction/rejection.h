// Rejects tokens that are too far from the rollout's policy to be trained on, with statistics.
// Formulas: verl 0.9.1 (rollout_corr_helper.py).
#pragma once

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/rollout_correction/log_prob_row.h"
#include "common/rollout_correction/thresholds.h"

namespace tandem {

// One criterion over a batch. Not thread-safe.
class CriterionStatistics {
 public:
  explicit CriterionStatistics(RejectionCriterion criterion) : criterion_(std::move(criterion)) {}

  // Whether the criterion keeps each token. Tokens that do not count are kept.
  std::vector<bool> Keeps(const LogProbRow& row) const;

  void Observe(const LogProbRow& row);

  // Adds rollout_rs_NAME_* of the observed rows; at least one token must count.
  void AddMetrics(std::map<std::string, double>& metrics) const;

 private:
  struct Values {
    std::vector<float>
        tokens;           // each token's value, or the response's value for each of its tokens
    double sequence = 0;  // the response's value, or the mean of its tokens' values
    double counted = 0;   // tokens
  };
  Values ValuesOf(const LogProbRow& row) const;
  float TokenValue(float log_ratio) const;
  bool Keeps(float value) const;

  const RejectionCriterion criterion_;
  // Over tokens that count.
  double tokens_ = 0, sum_ = 0, clamped_sum_ = 0, clamped_squares_ = 0;
  double tokens_above_ = 0, tokens_below_ = 0, rejected_ = 0;
  double min_ = std::numeric_limits<double>::infinity();
  double max_ = -std::numeric_limits<double>::infinity();
  // Over responses with a token that counts.
  Moments sequences_;
  double sequences_above_ = 0, sequences_below_ = 0, sequences_cut_ = 0;
};

// Several criteria; a token is kept if all keep it.
class Rejection {
 public:
  explicit Rejection(const std::vector<RejectionCriterion>& criteria);

  void Observe(const LogProbRow& row);

  // 1: trained; 0: rejected, or not counted before. Depends on the row alone.
  std::vector<float> Mask(const LogProbRow& row) const;

  // Adds rollout_rs_*; at least one token must count.
  void AddMetrics(std::map<std::string, double>& metrics) const;

 private:
  std::vector<CriterionStatistics> criteria_;
  double tokens_ = 0, rejected_ = 0;
  double sequences_ = 0, sequences_cut_ = 0;  // including empty ones, as in verl
};

}  // namespace tandem
