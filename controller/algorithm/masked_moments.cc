#include "controller/algorithm/masked_moments.h"

#include <cmath>

#include "common/base/status_macros.h"

namespace tandem {

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
