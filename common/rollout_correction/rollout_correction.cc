#include "common/rollout_correction/rollout_correction.h"

#include <utility>

#include "common/base/status.h"

namespace tandem {

absl::StatusOr<RolloutCorrection> RolloutCorrection::Create(
    const RolloutCorrectionOptions& options) {
  RolloutCorrection correction;
  correction.is_threshold_ = options.rollout_is_threshold;
  if (options.rollout_is) {
    const std::string& level = *options.rollout_is;
    if (level != "token" && level != "sequence") {
      return InvalidArgument("rollout_is is \"{}\"; use token or sequence", level);
    }
    const absl::StatusOr<ImportanceBounds> bounds =
        ParseImportanceBounds(options.rollout_is_threshold);
    TANDEM_RETURN_IF_ERROR(Annotate(bounds.status(), "rollout_is_threshold"));
    correction.weights_.emplace(ImportanceOptions{
        .level = level == "token" ? ImportanceLevel::kToken : ImportanceLevel::kSequence,
        .bounds = *bounds,
        .normalize = options.rollout_is_batch_normalize});
  }
  if (options.rollout_rs) {
    if (!options.rollout_rs_threshold) {
      return InvalidArgument(
          "rollout_rs={} needs rollout_rs_threshold: there is no bound that fits every criterion",
          *options.rollout_rs);
    }
    const auto criteria = ParseRejection(*options.rollout_rs, *options.rollout_rs_threshold);
    TANDEM_RETURN_IF_ERROR(Annotate(criteria.status(), "rollout_rs, rollout_rs_threshold"));
    correction.rejection_.emplace(*criteria);
  }
  return correction;
}

absl::Status RolloutCorrection::Observe(const LogProbRow& row) {
  if (row.rollout.size() != row.size() || (!row.mask.empty() && row.mask.size() != row.size())) {
    return InvalidArgument("{} log-probs of the trainers, {} of the rollout and {} mask values",
                           row.size(), row.rollout.size(), row.mask.size());
  }
  if (weights_) weights_->Observe(row);
  if (rejection_) rejection_->Observe(row);
  off_policy_.Observe(row);
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, double>> RolloutCorrection::Metrics() const {
  if (off_policy_.tokens() == 0) {
    return InvalidArgument(
        "rollout_correction: there is no token to correct: every response is empty or masked; look "
        "at the response lengths and at which tokens are trained");
  }
  if (weights_ && weights_->all_zero()) {
    return InvalidArgument(
        "rollout_is_threshold={} makes every importance weight 0: none of the {:.0f} tokens has a "
        "ratio inside the band, so there is nothing to learn from. Widen the band, or find out why "
        "rollout and trainers differ (tandem-parity)",
        is_threshold_, off_policy_.tokens());
  }
  std::map<std::string, double> metrics, prefixed;
  if (weights_) weights_->AddMetrics(metrics);
  if (rejection_) rejection_->AddMetrics(metrics);
  off_policy_.AddMetrics(metrics);
  for (const auto& [name, value] : metrics) prefixed["rollout_corr/" + name] = value;
  return prefixed;
}

std::vector<float> RolloutCorrection::Weights(const LogProbRow& row) const {
  return weights_ ? weights_->Weights(row) : std::vector<float>{};
}

std::vector<float> RolloutCorrection::Mask(const LogProbRow& row) const {
  return rejection_ ? rejection_->Mask(row) : std::vector<float>{};
}

}  // namespace tandem
