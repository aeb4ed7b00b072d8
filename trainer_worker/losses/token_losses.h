// The parts that the policy losses (policy/) share: functions over vectors of tokens as LibTorch
// expressions, so that autograd computes gradients. Formulas: verl 0.9.1 (core_algos.py), checked
// against its numbers. Only losses/ and its tests include this header, as it includes ATen.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_worker/losses/loss_options.h"
#include "trainer_worker/losses/tensors.h"

namespace tandem {

// Sum of the values where the mask is not 0; a NaN outside the mask does not count.
at::Tensor MaskedSum(const at::Tensor& values, const at::Tensor& mask);

// Aggregates token losses [tokens] to one number. `rows` [tokens] int64 names the sequence of each
// token, 0 <= row < num_rows; only the seq-mean modes read it. InvalidArgument: an unknown mode, or
// dp_size above 1 without the global count that the mode divides by.
absl::StatusOr<at::Tensor> AggregateLoss(const at::Tensor& loss,
                                         const at::Tensor& mask,
                                         const at::Tensor& rows,
                                         int64_t num_rows,
                                         const LossScale& scale);

// An estimator of KL(policy || reference) per token. `name` is kl, k1, abs, mse, k2, low_var_kl or
// k3; a trailing + keeps the value but uses k2's gradient. InvalidArgument: any other name.
absl::StatusOr<at::Tensor> KlPenalty(const at::Tensor& log_probs,
                                     const at::Tensor& ref_log_probs,
                                     const std::string& name);

}  // namespace tandem
