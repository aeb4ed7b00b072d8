// Parses verl's specifications of importance weights and of rejection.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// rollout_is_threshold: a number is the upper bound of truncated importance sampling; "lo_hi" are
// the bounds of IcePop.
struct ImportanceBounds {
  float upper = 2;
  std::optional<float> lower;  // given: weights outside [lower, upper] become 0
};

// Numbers are written as in Python. The first underscore parts two bounds, and later ones are
// Python's separators: "0.5_1_000" is 0.5 and 1000. InvalidArgument: not a number, a bound that is
// not above 0, lower > upper, or a bound beyond the range of a float.
absl::StatusOr<ImportanceBounds> ParseImportanceBounds(const std::string& text);

// With d = log(policy / rollout) of a token, clamped to +-20:
// k1 = -d, k2 = d^2 / 2, k3 = e^d - 1 - d (J. Schulman, Approximating KL divergence, 2020).
enum class DivergenceKind { kK1, kK2, kK3 };
// What is compared with the threshold: the token's own value, or one number of the whole response.
enum class RejectionLevel { kToken, kSequenceSum, kSequenceMean, kSequenceMax };

struct RejectionCriterion {
  std::string name;  // verl's, such as seq_mean_k3
  RejectionLevel level = RejectionLevel::kToken;
  DivergenceKind divergence = DivergenceKind::kK1;
  // Kept: lower <= value <= upper. For k1 these are the logarithms of the bounds on the ratio; k2
  // and k3 have no lower bound.
  float upper = 0;
  std::optional<float> lower;
};

// `names`: criteria separated by commas; duplicates are ignored, and a token is kept if all
// criteria keep it. `thresholds`: one for all criteria, or one for each, separated by commas:
// "lo_hi" or "hi" (then lo = 1 / hi) for k1, a number for k2 and k3; nothing between two commas, or
// behind the last, is passed over, as in verl. InvalidArgument: an unknown
// name (there is no seq_max_k1), another number of thresholds, or an invalid threshold.
absl::StatusOr<std::vector<RejectionCriterion>> ParseRejection(const std::string& names,
                                                               const std::string& thresholds);

}  // namespace tandem
