// Importance weights policy / rollout of tokens or of whole responses, truncated or banded, and
// their statistics. Formulas: verl 0.9.1 (rollout_corr_helper.py); truncated importance sampling:
// F. Yao et al., Your efficient RL framework secretly brings you off-policy RL training (2025);
// bands: IcePop, Ling Team, Every step evolves (arXiv:2510.18855).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/rollout_correction/log_prob_row.h"
#include "common/rollout_correction/thresholds.h"

namespace tandem {

// token: e^d of every token. sequence: e^(sum of d over the response), on each of its tokens.
// d is clamped to +-20 (the sum, for a sequence).
enum class ImportanceLevel { kToken, kSequence };

struct ImportanceOptions {
  ImportanceLevel level = ImportanceLevel::kToken;
  // Truncated: min(weight, upper). With a lower bound: the weight inside the bounds, 0 outside.
  ImportanceBounds bounds;
  // Divide by the mean over the batch: of all tokens, or of the responses that have tokens.
  bool normalize = false;
};

// Takes two passes over the responses: Observe all of them, then ask for Weights. Sums are in
// double, in the order of Observe. Not thread-safe.
class ImportanceWeights {
 public:
  explicit ImportanceWeights(ImportanceOptions options) : options_(options) {}

  void Observe(const LogProbRow& row);

  // One per token; 0 where the mask is 0. Normalized over the observed rows, if requested.
  std::vector<float> Weights(const LogProbRow& row) const;

  // Whether the weight of every observed token that counts is 0, which a band alone can do.
  bool all_zero() const { return sum_squares_ == 0; }

  // Adds rollout_is_* of the observed rows; at least one token must count, and not all weights may
  // be 0.
  void AddMetrics(std::map<std::string, double>& metrics) const;

 private:
  std::vector<float> RawWeights(const LogProbRow& row) const;
  float Bounded(float raw) const;
  float Lower() const;
  double BatchMean() const;
  void ObserveSequence(const LogProbRow& row, double applied_sum, double raw_sum, double tokens);

  const ImportanceOptions options_;
  // Over tokens that count.
  double tokens_ = 0, sum_ = 0, sum_squares_ = 0;
  double above_ = 0, below_ = 0;  // weights before truncation
  double min_ = std::numeric_limits<double>::infinity();
  double max_ = -std::numeric_limits<double>::infinity();
  // Over responses, including empty ones, as in verl.
  Moments sequences_;  // mean weight of a response
  double deviation_ = 0;
  double sequences_above_ = 0, sequences_below_ = 0;
  Moments log_ratio_sums_;
  double sums_above_ = 0, sums_below_ = 0;
  // Over responses with tokens.
  double valid_sequences_ = 0, valid_sum_ = 0;
};

}  // namespace tandem
