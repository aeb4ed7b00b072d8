// What the terms of the loss have in common, over vectors of tokens, as LibTorch expressions, so
// that gradients come from autograd; the policy losses are in policy/. Formulas: verl 0.9.1
// (core_algos.py), checked against its numbers. Only losses/ and its tests include this header: it
// drags ATen in.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_worker/losses/loss_options.h"
#include "trainer_worker/losses/tensors.h"

namespace tandem {

// Sum of values where mask is not 0; a NaN outside the mask does not count.
at::Tensor MaskedSum(const at::Tensor& values, const at::Tensor& mask);

// One number from token losses [tokens]. `rows` [tokens] int64 names the sequence of each token,
// 0 <= row < num_rows; only the seq-mean modes read it. InvalidArgument: dp_size above 1 without
// the global count that the mode divides by.
absl::StatusOr<at::Tensor> AggregateLoss(const at::Tensor& loss,
                                         const at::Tensor& mask,
                                         const at::Tensor& rows,
                                         int64_t num_rows,
                                         const LossScale& scale);

// Estimator of KL(policy || reference) per token. `name` is kl, k1, abs, mse, k2, low_var_kl or k3;
// a trailing + keeps the value and takes k2's gradient. InvalidArgument names any other.
absl::StatusOr<at::Tensor> KlPenalty(const at::Tensor& log_probs,
                                     const at::Tensor& ref_log_probs,
                                     const std::string& name);

}  // namespace tandem
