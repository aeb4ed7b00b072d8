#include "common/rollout_correction/rejection.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem {

float CriterionStatistics::TokenValue(float log_ratio) const {
  const float d = ClampLogRatio(log_ratio);
  if (criterion_.divergence == DivergenceKind::kK1) return -d;
  if (criterion_.divergence == DivergenceKind::kK2) return 0.5f * (d * d);
  return RoundedExp(d) - 1.0f - d;
}

// Written so that NaN is not kept.
bool CriterionStatistics::Keeps(float value) const {
  return value <= criterion_.upper && (!criterion_.lower || value >= *criterion_.lower);
}

CriterionStatistics::Values CriterionStatistics::ValuesOf(const LogProbRow& row) const {
  Values values;
  values.tokens.assign(row.size(), 0.0f);
  double sum = 0;
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t t = 0; t < row.size(); ++t) {
    if (!row.counts(t)) continue;
    values.tokens[t] = TokenValue(row.log_ratio(t));
    values.counted += 1;
    sum += values.tokens[t];
    largest = std::max(largest, values.tokens[t]);
  }
  values.sequence = MeanOf(sum, values.counted);
  if (criterion_.level == RejectionLevel::kToken) return values;
  if (criterion_.level == RejectionLevel::kSequenceSum) values.sequence = sum;
  if (criterion_.level == RejectionLevel::kSequenceMax && values.counted > 0) {
    values.sequence = largest;
  }
  std::fill(values.tokens.begin(), values.tokens.end(), static_cast<float>(values.sequence));
  return values;
}

std::vector<bool> CriterionStatistics::Keeps(const LogProbRow& row) const {
  const Values values = ValuesOf(row);
  std::vector<bool> keeps(row.size(), true);
  for (size_t t = 0; t < row.size(); ++t) keeps[t] = !row.counts(t) || Keeps(values.tokens[t]);
  return keeps;
}

void CriterionStatistics::Observe(const LogProbRow& row) {
  const Values values = ValuesOf(row);
  if (values.counted == 0) return;
  const float lowest = criterion_.lower.value_or(0.0f);
  double rejected = 0;
  for (size_t t = 0; t < row.size(); ++t) {
    if (!row.counts(t)) continue;
    const float value = values.tokens[t];
    const double clamped = std::clamp(value, lowest, criterion_.upper);
    sum_ += value;
    clamped_sum_ += clamped;
    clamped_squares_ += clamped * clamped;
    tokens_above_ += value > criterion_.upper ? 1 : 0;
    tokens_below_ += criterion_.lower && value < lowest ? 1 : 0;
    min_ = std::min<double>(min_, value);
    max_ = std::max<double>(max_, value);
    rejected += Keeps(value) ? 0 : 1;
  }
  tokens_ += values.counted;
  rejected_ += rejected;
  const auto sequence = static_cast<float>(values.sequence);
  sequences_.Add(sequence);
  sequences_above_ += sequence > criterion_.upper ? 1 : 0;
  sequences_below_ += criterion_.lower && sequence < lowest ? 1 : 0;
  sequences_cut_ += rejected > 0 ? 1 : 0;
}

void CriterionStatistics::AddMetrics(std::map<std::string, double>& metrics) const {
  const auto set = [&](const char* what, double value) {
    metrics["rollout_rs_" + criterion_.name + what] = value;
  };
  const auto rows = static_cast<double>(sequences_.count);
  const double seq_high = MeanOf(sequences_above_, rows), seq_low = MeanOf(sequences_below_, rows);
  // Over responses if each response has one value, else over tokens.
  const bool whole = criterion_.level != RejectionLevel::kToken;
  set("_mean", MeanOf(sum_, tokens_));
  set("_max", whole ? sequences_.max : max_);
  set("_min", whole ? sequences_.min : min_);
  set("_fraction_high", whole ? seq_high : MeanOf(tokens_above_, tokens_));
  set("_fraction_low", whole ? seq_low : MeanOf(tokens_below_, tokens_));
  const double clamped = MeanOf(clamped_sum_, tokens_);
  const double variance = MeanOf(clamped_squares_, tokens_) - clamped * clamped;
  set("_std", tokens_ > 1 ? std::sqrt(std::max(0.0, variance)) : 0.0);
  set("_seq_mean", sequences_.mean);
  set("_seq_std", sequences_.StandardDeviation());
  set("_seq_max", sequences_.max);
  set("_seq_min", sequences_.min);
  set("_seq_max_deviation", std::max(std::abs(sequences_.max), std::abs(sequences_.min)));
  set("_seq_fraction_high", seq_high);
  if (criterion_.lower) set("_seq_fraction_low", seq_low);
  set("_masked_fraction", MeanOf(rejected_, tokens_));
  set("_seq_masked_fraction", MeanOf(sequences_cut_, rows));
}

Rejection::Rejection(const std::vector<RejectionCriterion>& criteria)
    : criteria_(criteria.begin(), criteria.end()) {}

std::vector<float> Rejection::Mask(const LogProbRow& row) const {
  std::vector<float> mask(row.size(), 0.0f);
  for (size_t t = 0; t < row.size(); ++t) mask[t] = row.counts(t) ? 1.0f : 0.0f;
  for (const CriterionStatistics& criterion : criteria_) {
    const std::vector<bool> keeps = criterion.Keeps(row);
    for (size_t t = 0; t < row.size(); ++t) {
      if (!keeps[t]) mask[t] = 0.0f;
    }
  }
  return mask;
}

void Rejection::Observe(const LogProbRow& row) {
  for (CriterionStatistics& criterion : criteria_) criterion.Observe(row);
  const std::vector<float> mask = Mask(row);
  double tokens = 0, rejected = 0;
  for (size_t t = 0; t < row.size(); ++t) {
    if (!row.counts(t)) continue;
    tokens += 1;
    rejected += mask[t] == 0 ? 1 : 0;
  }
  tokens_ += tokens;
  rejected_ += rejected;
  sequences_ += 1;
  sequences_cut_ += rejected > 0 ? 1 : 0;
}

void Rejection::AddMetrics(std::map<std::string, double>& metrics) const {
  for (const CriterionStatistics& criterion : criteria_) criterion.AddMetrics(metrics);
  metrics["rollout_rs_masked_fraction"] = MeanOf(rejected_, tokens_);
  metrics["rollout_rs_seq_masked_fraction"] = MeanOf(sequences_cut_, sequences_);
}

}  // namespace tandem
