// The KL penalty against the reference policy in the rewards of tokens (verl ray_trainer
// apply_kl_penalty).
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

struct TokenKl {
  std::vector<float> penalty;  // per response token; 0 where the mask is
  double mean = 0;             // over the tokens that the mask leaves; 0 where it leaves none
};

// The penalty of one response before it is weighed: a token's reward is its score less coef *
// penalty. `log_probs`: of the policy that sampled. `mask`: 0 or 1 per token; empty: all 1. The KL
// of a batch is the mean of `mean` over its responses. Errors as KlPenalty; InvalidArgument: a mask
// of another length.
absl::StatusOr<TokenKl> KlOfTokens(const std::vector<float>& log_probs,
                                   const std::vector<float>& ref_log_probs,
                                   const std::vector<float>& mask,
                                   const std::string& estimator);

}  // namespace tandem
