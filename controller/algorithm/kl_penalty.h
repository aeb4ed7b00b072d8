// Estimators of KL(policy || reference) per token (verl core_algos kl_penalty; Schulman,
// "Approximating KL divergence").
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// `name`: kl, k1: log p - log q; abs: its absolute value; mse, k2: half its square; low_var_kl, k3:
// q/p - log(q/p) - 1, the exponent clamped to [-20, 20] and the result to [-10, 10].
// A + at the end, which gives a loss the gradient of k2, changes no value.
// InvalidArgument: unknown name or arrays of different length.
absl::StatusOr<std::vector<float>> KlPenalty(const std::vector<float>& log_probs,
                                             const std::vector<float>& ref_log_probs,
                                             const std::string& name);

}  // namespace tandem
