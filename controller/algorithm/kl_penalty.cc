#include "controller/algorithm/kl_penalty.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/base/numeric.h"
#include "common/base/status.h"

namespace tandem {

double NextKlCoef(const KlControl& control, double coef, double kl, int64_t samples) {
  if (!control.adaptive || !std::isfinite(kl)) return coef;
  const double error = std::clamp(kl / control.target - 1, -0.2, 0.2);
  return coef * (1 + error * static_cast<double>(samples) / control.horizon);
}

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

absl::StatusOr<TokenKl> KlOfTokens(const std::vector<float>& log_probs,
                                   const std::vector<float>& ref_log_probs,
                                   const std::vector<float>& mask,
                                   const std::string& estimator) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<float> penalty,
                          KlPenalty(log_probs, ref_log_probs, estimator));
  if (!mask.empty() && mask.size() != penalty.size()) {
    return InvalidArgument("{} mask values for {} response tokens", mask.size(), penalty.size());
  }
  double sum = 0;
  int64_t counted = 0;
  for (size_t i = 0; i < penalty.size(); ++i) {
    if (!mask.empty() && mask[i] == 0) {
      penalty[i] = 0;
      continue;
    }
    sum += penalty[i];
    ++counted;
  }
  return TokenKl{.penalty = std::move(penalty),
                 .mean = counted == 0 ? 0.0 : sum / static_cast<double>(counted)};
}

}  // namespace tandem
