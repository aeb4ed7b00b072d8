// The KL penalty in the reward, and its coefficient, which is fixed or adaptive (verl core_algos
// FixedKLController and AdaptiveKLController; Ziegler et al. 2019, "Fine-Tuning Language Models
// from Human Preferences", section 2.2).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

struct KlControl {
  bool adaptive = false;
  double target = 0.1;     // KL per token, nats; not 0, and below 0 only for estimators that may be
  double horizon = 10000;  // samples; > 0
};

// The coefficient for the next step, given this step's `coef`, number of `samples` and KL. Fixed:
// unchanged; adaptive: coef * (1 + clip(kl / target - 1, -0.2, 0.2) * samples / horizon). A KL that
// is not finite leaves the coefficient unchanged, as it would otherwise never become finite again.
// Pure.
double NextKlCoef(const KlControl& control, double coef, double kl, int64_t samples);

// Estimators of KL(policy || reference) per token (verl core_algos kl_penalty; Schulman,
// "Approximating KL divergence"). `name`: kl, k1: log p - log q; abs: its absolute value; mse, k2:
// half its square; low_var_kl, k3: q/p - log(q/p) - 1, the exponent clamped to [-20, 20] and the
// result to [-10, 10]. A + at the end, which gives a loss the gradient of k2, changes no value.
// InvalidArgument: unknown name or arrays of different length.
absl::StatusOr<std::vector<float>> KlPenalty(const std::vector<float>& log_probs,
                                             const std::vector<float>& ref_log_probs,
                                             const std::string& name);

// The KL penalty against the reference policy in the rewards of tokens (verl ray_trainer
// apply_kl_penalty).
struct TokenKl {
  std::vector<float> penalty;  // per response token; 0 where the mask is
  double mean = 0;             // over the tokens that the mask keeps; 0 if it keeps none
};

// The penalty of one response, not yet multiplied by the coefficient: a token's reward is its score
// minus coef * penalty. `log_probs`: of the policy that sampled. `mask`: 0 or 1 per token; empty:
// all 1. The KL of a batch is the mean of `mean` over its responses. Errors as KlPenalty;
// InvalidArgument: a mask of another length.
absl::StatusOr<TokenKl> KlOfTokens(const std::vector<float>& log_probs,
                                   const std::vector<float>& ref_log_probs,
                                   const std::vector<float>& mask,
                                   const std::string& estimator);

}  // namespace tandem
