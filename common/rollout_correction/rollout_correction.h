// The rollout correction and its options.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/rollout_correction/importance_weights.h"
#include "common/rollout_correction/log_prob_row.h"
#include "common/rollout_correction/off_policy_metrics.h"
#include "common/rollout_correction/rejection.h"

namespace tandem {

// The options, in verl's spelling.
struct RolloutCorrectionOptions {
  std::optional<std::string> rollout_is;  // token or sequence
  std::string rollout_is_threshold = "2.0";
  bool rollout_is_batch_normalize = false;
  std::optional<std::string> rollout_rs;
  std::optional<std::string> rollout_rs_threshold;

  bool enabled() const { return rollout_is || rollout_rs; }
};

// Computes importance weights, rejection and off-policy metrics of a batch, response by response,
// so that the token arrays of a step are never all in memory. Keys, names and numbers are those of
// verl 0.9.1 (algorithm.rollout_correction, rollout_corr_helper.py). Takes two passes over the same
// responses in the same order: Observe all of them, then take Metrics once, and Weights and Mask of
// each. Not thread-safe.
class RolloutCorrection {
 public:
  // InvalidArgument names the key that cannot be read.
  static absl::StatusOr<RolloutCorrection> Create(const RolloutCorrectionOptions& options);

  // InvalidArgument: arrays of different lengths.
  absl::Status Observe(const LogProbRow& row);

  // rollout_corr/... of the observed rows. InvalidArgument: no token counts, or every importance
  // weight is 0 (verl raises an exception for both).
  absl::StatusOr<std::map<std::string, double>> Metrics() const;

  bool weighs() const { return weights_.has_value(); }
  bool rejects() const { return rejection_.has_value(); }
  // One per token; empty without rollout_is.
  std::vector<float> Weights(const LogProbRow& row) const;
  // One per token, 0 or 1; empty without rollout_rs.
  std::vector<float> Mask(const LogProbRow& row) const;

 private:
  RolloutCorrection() = default;

  std::string is_threshold_;  // for messages
  std::optional<ImportanceWeights> weights_;
  std::optional<Rejection> rejection_;
  OffPolicyMetrics off_policy_;
};

}  // namespace tandem
