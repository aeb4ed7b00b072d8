#include "controller/algorithm/advantage_batch.h"

#include <cmath>

#include "common/base/status.h"

namespace tandem {
namespace {

absl::Status CheckArray(const AdvantageEstimator& estimator,
                        const AdvantageRow& row,
                        const char* what,
                        const std::vector<float>& values) {
  if (static_cast<int64_t>(values.size()) == row.tokens) return absl::OkStatus();
  return InvalidArgument(
      "sample {:#x}: {} needs {}, one per response token, and there are {} for {}", row.sample_id,
      estimator.name, what, values.size(), row.tokens);
}

absl::Status CheckRow(const AdvantageEstimator& estimator,
                      const AdvantageRow& row,
                      const AdvantageRow& first) {
  const AdvantageNeeds& needs = estimator.needs;
  if (needs.rewards) {
    TANDEM_RETURN_IF_ERROR(CheckArray(estimator, row, "rewards", row.rewards));
    TANDEM_RETURN_IF_ERROR(CheckArray(estimator, row, "a mask", row.mask));
  }
  if (needs.policy) {
    TANDEM_RETURN_IF_ERROR(CheckArray(estimator, row, "log-probs", row.log_probs));
    TANDEM_RETURN_IF_ERROR(CheckArray(estimator, row, "sum_pi_squared", row.sum_pi_squared));
    if (!row.is_weights.empty()) {
      TANDEM_RETURN_IF_ERROR(CheckArray(estimator, row, "importance weights", row.is_weights));
    }
  }
  if (!needs.components ||
      (!row.components.empty() && row.components.size() == first.components.size())) {
    return absl::OkStatus();
  }
  return InvalidArgument("sample {:#x}: {} needs the same reward keys of every response",
                         row.sample_id, estimator.name);
}

}  // namespace

void AdvantageBatch::AddScore(float score) {
  ++scores_.samples;
  scores_.nonzero += score != 0 ? 1 : 0;
}

absl::StatusOr<std::vector<RowAdvantage>> AdvantageBatch::Raw(const AdvantageGroup& group) const {
  for (const AdvantageRow& row : group) {
    TANDEM_RETURN_IF_ERROR(CheckRow(estimator_, row, group.front()));
  }
  return estimator_.compute(group, options_, scores_);
}

absl::Status AdvantageBatch::Observe(const AdvantageGroup& group) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<RowAdvantage> results, Raw(group));
  for (size_t i = 0; i < group.size(); ++i) {
    const AdvantageRow& row = group[i];
    if (results[i].tokens.empty()) {
      moments_.Add(row.sample_id, results[i].value, row.trained);
    } else {
      moments_.Add(row.sample_id, results[i].tokens, row.mask);
    }
  }
  return absl::OkStatus();
}

absl::Status AdvantageBatch::FinishObserving() {
  TANDEM_ASSIGN_OR_RETURN(whitener_, moments_.Finish());
  return absl::OkStatus();
}

void AdvantageBatch::Whiten(const AdvantageRow& row, RowAdvantage& result) const {
  result.value = whitener_(result.value);
  for (size_t t = 0; t < result.tokens.size(); ++t) {
    result.tokens[t] = row.mask[t] == 0 ? 0.0 : whitener_(result.tokens[t]);
  }
}

absl::StatusOr<std::vector<RowAdvantage>> AdvantageBatch::Compute(
    const AdvantageGroup& group) const {
  TANDEM_ASSIGN_OR_RETURN(std::vector<RowAdvantage> results, Raw(group));
  if (!whitens()) return results;
  for (size_t i = 0; i < group.size(); ++i) Whiten(group[i], results[i]);
  return results;
}

void MaskedMoments::Add(uint64_t sample_id, double value, int64_t trained) {
  responses_[sample_id] = {.count = static_cast<double>(trained), .mean = value};
}

void MaskedMoments::Add(uint64_t sample_id,
                        const std::vector<double>& values,
                        const std::vector<float>& mask) {
  Moments moments;
  for (size_t t = 0; t < values.size(); ++t) {
    if (mask[t] == 0) continue;
    moments.count += 1;
    moments.mean += values[t];
  }
  if (moments.count > 0) moments.mean /= moments.count;
  for (size_t t = 0; t < values.size(); ++t) {
    const double off = values[t] - moments.mean;
    if (mask[t] != 0) moments.squares += off * off;
  }
  responses_[sample_id] = moments;
}

absl::StatusOr<Whitener> MaskedMoments::Finish() const {
  double count = 0, sum = 0, squares = 0;
  for (const auto& [id, response] : responses_) {
    count += response.count;
    sum += response.count * response.mean;
  }
  if (count < 2) {
    return InvalidArgument(
        "advantages are whitened over the trained tokens of a step, and this step has {}: two are "
        "the least; look at the response lengths and at what the rollout correction rejects",
        count);
  }
  const double mean = sum / count;
  for (const auto& [id, response] : responses_) {
    const double off = response.mean - mean;
    squares += response.squares + response.count * off * off;
  }
  return Whitener{.mean = mean, .scale = 1.0 / std::sqrt(squares / (count - 1) + 1e-8)};
}

}  // namespace tandem
