#include "common/rollout_correction/importance_weights.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// A mean weight below this counts as 0, and nothing is divided by it.
constexpr double kSmallestMean = 1e-8;

double SumOfLogRatios(const LogProbRow& row) {
  double sum = 0;
  for (size_t t = 0; t < row.size(); ++t) {
    if (row.counts(t)) sum += row.log_ratio(t);
  }
  return sum;
}

float RoundedLog(float x) { return static_cast<float>(std::log(static_cast<double>(x))); }

}  // namespace

std::vector<float> ImportanceWeights::RawWeights(const LogProbRow& row) const {
  std::vector<float> weights(row.size(), 0.0f);
  const bool tokens = options_.level == ImportanceLevel::kToken;
  const float whole =
      tokens ? 0.0f : RoundedExp(ClampLogRatio(static_cast<float>(SumOfLogRatios(row))));
  for (size_t t = 0; t < row.size(); ++t) {
    if (!row.counts(t)) continue;
    weights[t] = tokens ? RoundedExp(ClampLogRatio(row.log_ratio(t))) : whole;
  }
  return weights;
}

float ImportanceWeights::Bounded(float raw) const {
  const ImportanceBounds& bounds = options_.bounds;
  if (!bounds.lower) return std::min(raw, bounds.upper);
  return raw >= *bounds.lower && raw <= bounds.upper ? raw : 0.0f;
}

// Truncation has no lower bound; the metrics use the reciprocal of the upper bound.
float ImportanceWeights::Lower() const {
  return options_.bounds.lower.value_or(static_cast<float>(1.0 / options_.bounds.upper));
}

void ImportanceWeights::Observe(const LogProbRow& row) {
  const std::vector<float> raw = RawWeights(row);
  double tokens = 0, sum = 0, raw_sum = 0;
  for (size_t t = 0; t < row.size(); ++t) {
    if (!row.counts(t)) continue;
    const double weight = Bounded(raw[t]);
    tokens += 1;
    sum += weight;
    raw_sum += raw[t];
    sum_squares_ += weight * weight;
    min_ = std::min(min_, weight);
    max_ = std::max(max_, weight);
    above_ += raw[t] > options_.bounds.upper ? 1 : 0;
    below_ += raw[t] < Lower() ? 1 : 0;
  }
  tokens_ += tokens;
  sum_ += sum;
  ObserveSequence(row, sum, raw_sum, tokens);
}

void ImportanceWeights::ObserveSequence(const LogProbRow& row,
                                        double applied_sum,
                                        double raw_sum,
                                        double tokens) {
  const double mean = MeanOf(applied_sum, tokens), raw_mean = MeanOf(raw_sum, tokens);
  sequences_.Add(mean);
  deviation_ = std::max(deviation_, std::abs(mean - 1));
  sequences_above_ += raw_mean > options_.bounds.upper ? 1 : 0;
  sequences_below_ += raw_mean < Lower() ? 1 : 0;
  if (tokens > 0) {
    valid_sequences_ += 1;
    valid_sum_ += mean;
  }
  if (options_.level == ImportanceLevel::kToken) return;
  const auto log_ratio = static_cast<float>(SumOfLogRatios(row));
  log_ratio_sums_.Add(log_ratio);
  sums_above_ += log_ratio > RoundedLog(options_.bounds.upper) ? 1 : 0;
  sums_below_ += log_ratio < RoundedLog(Lower()) ? 1 : 0;
}

double ImportanceWeights::BatchMean() const {
  const double mean = options_.level == ImportanceLevel::kToken
                          ? MeanOf(sum_, tokens_)
                          : MeanOf(valid_sum_, valid_sequences_);
  return mean > kSmallestMean ? mean : 1.0;
}

std::vector<float> ImportanceWeights::Weights(const LogProbRow& row) const {
  std::vector<float> weights = RawWeights(row);
  const auto mean = static_cast<float>(options_.normalize ? BatchMean() : 1.0);
  for (size_t t = 0; t < weights.size(); ++t) {
    if (row.counts(t)) weights[t] = Bounded(weights[t]) / mean;
  }
  return weights;
}

void ImportanceWeights::AddMetrics(std::map<std::string, double>& metrics) const {
  const double mean = MeanOf(sum_, tokens_), mean_square = MeanOf(sum_squares_, tokens_);
  metrics["rollout_is_mean"] = mean;
  metrics["rollout_is_std"] =
      tokens_ > 1 ? std::sqrt(std::max(0.0, mean_square - mean * mean)) : 0.0;
  // 1 / mean of (weights / mean)²: 1 if all are equal.
  metrics["rollout_is_eff_sample_size"] = (mean + 1e-8) * (mean + 1e-8) / mean_square;
  const bool whole = options_.level == ImportanceLevel::kSequence;
  const auto rows = static_cast<double>(sequences_.count);
  metrics["rollout_is_max"] =
      whole ? RoundedExp(std::min(static_cast<float>(log_ratio_sums_.max), kLogRatioBound)) : max_;
  metrics["rollout_is_min"] = whole ? RoundedExp(static_cast<float>(log_ratio_sums_.min)) : min_;
  metrics["rollout_is_ratio_fraction_high"] =
      whole ? MeanOf(sums_above_, rows) : MeanOf(above_, tokens_);
  metrics["rollout_is_ratio_fraction_low"] =
      whole ? MeanOf(sums_below_, rows) : MeanOf(below_, tokens_);
  metrics["rollout_is_seq_mean"] = sequences_.mean;
  metrics["rollout_is_seq_std"] = sequences_.StandardDeviation();
  metrics["rollout_is_seq_max"] = sequences_.max;
  metrics["rollout_is_seq_min"] = sequences_.min;
  metrics["rollout_is_seq_max_deviation"] = deviation_;
  metrics["rollout_is_seq_fraction_high"] = MeanOf(sequences_above_, rows);
  metrics["rollout_is_seq_fraction_low"] = MeanOf(sequences_below_, rows);
  if (options_.bounds.lower) {
    metrics["rollout_is_oob_ratio"] = MeanOf(above_ + below_, tokens_);
  }
  if (options_.normalize) metrics["rollout_is_batch_norm_factor"] = BatchMean();
}

}  // namespace tandem
