// Which tokens are too far from the rollout's policy to be trained on, and statistics of that.
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

  // rollout_rs_NAME_* of the observed rows, in which some token must count.
  void AddMetrics(std::map<std::string, double>& metrics) const;

 private:
  struct Values {
    std::vector<float> tokens;  // the token's, or the response's on each of its tokens
    double sequence = 0;        // the response's, or the mean of the tokens'
    double counted = 0;         // tokens
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

  // 1: trained; 0: rejected, or did not count before. A function of the row alone.
  std::vector<float> Mask(const LogProbRow& row) const;

  // rollout_rs_*; some token counted.
  void AddMetrics(std::map<std::string, double>& metrics) const;

 private:
  std::vector<CriterionStatistics> criteria_;
  double tokens_ = 0, rejected_ = 0;
  double sequences_ = 0, sequences_cut_ = 0;  // the empty ones too, as verl counts
};

}  // namespace tandem
