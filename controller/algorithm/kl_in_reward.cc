#include "controller/algorithm/kl_in_reward.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/base/status_macros.h"
#include "controller/algorithm/kl_penalty.h"

namespace tandem {

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
