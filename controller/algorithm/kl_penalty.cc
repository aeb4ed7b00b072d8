#include "controller/algorithm/kl_penalty.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/base/rounded_exp.h"
#include "common/base/status_macros.h"

namespace tandem {
namespace {

enum class Estimator { kK1, kAbsolute, kK2, kK3 };

absl::StatusOr<Estimator> ParseEstimator(const std::string& spelled) {
  const std::string name = spelled.substr(0, spelled.size() - (spelled.ends_with('+') ? 1 : 0));
  if (name == "kl" || name == "k1") return Estimator::kK1;
  if (name == "abs") return Estimator::kAbsolute;
  if (name == "mse" || name == "k2") return Estimator::kK2;
  if (name == "low_var_kl" || name == "k3") return Estimator::kK3;
  return InvalidArgument(
      "no KL estimator {}; there are kl, k1, abs, mse, k2, low_var_kl, k3, each with a + too",
      spelled);
}

float Estimate(Estimator estimator, float difference) {
  switch (estimator) {
    case Estimator::kAbsolute:
      return std::fabs(difference);
    case Estimator::kK2:
      return 0.5f * difference * difference;
    case Estimator::kK3: {
      const float reverse = std::clamp(-difference, -20.0f, 20.0f);
      return std::clamp(RoundedExp(reverse) - reverse - 1.0f, -10.0f, 10.0f);
    }
    case Estimator::kK1:
      break;
  }
  return difference;
}

}  // namespace

absl::StatusOr<std::vector<float>> KlPenalty(const std::vector<float>& log_probs,
                                             const std::vector<float>& ref_log_probs,
                                             const std::string& name) {
  TANDEM_ASSIGN_OR_RETURN(const Estimator estimator, ParseEstimator(name));
  if (log_probs.size() != ref_log_probs.size()) {
    return InvalidArgument("{} log-probs and {} reference log-probs", log_probs.size(),
                           ref_log_probs.size());
  }
  std::vector<float> penalties(log_probs.size());
  for (size_t i = 0; i < penalties.size(); ++i) {
    penalties[i] = Estimate(estimator, log_probs[i] - ref_log_probs[i]);
  }
  return penalties;
}

}  // namespace tandem
