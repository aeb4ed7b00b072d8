// The actor's loss over the trained tokens of a micro-batch, with its gradients:
//   policy loss (policy_loss_registry.h) + kl_loss_coef * KL(policy || reference) - entropy_coeff *
//   entropy,
// each aggregated the same way. LibTorch autograd inside, plain vectors outside.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "trainer_worker/losses/loss_options.h"
#include "trainer_worker/losses/token_selection.h"

namespace tandem {

// Every vector has one entry per token; vectors marked optional may be empty.
struct LossTokens {
  std::vector<float> log_probs;      // under the policy that is being trained
  std::vector<float> old_log_probs;  // under the policy that sampled
  std::vector<float> advantages;
  std::vector<float> ref_log_probs;  // optional; needed with use_kl_loss
  std::vector<float> entropy;        // optional; needed with entropy_coeff != 0
  std::vector<float> is_weights;     // optional: factors of the policy loss; unused in bypass mode
  std::vector<float> mask;           // optional, 0 or 1; empty: every token counts
  std::vector<int64_t> rows;  // optional: the sequence of each token; sequences must be complete
  std::vector<uint8_t> selected;  // optional; needed if the loss selects tokens
  std::vector<uint8_t> stale;     // optional; 1: sampled by weights older than the step's
  int64_t num_rows = 1;
};

// Sums are over tokens with mask 1 that bypass mode does not reject, so that those of micro-batches
// and ranks can be added.
struct LossResult {
  double loss = 0;         // the minimised value: this micro-batch's share
  double policy_loss = 0;  // aggregated terms of the loss, without their factors
  double kl_loss = 0;
  double entropy = 0;
  double tokens = 0;
  double clipped_sum = 0;
  double clipped_dual_sum = 0;
  double approx_kl_sum = 0;  // sum of old - new log-prob
  // Statistics of exp(new - old log-prob), the difference clamped to ±20.
  double ratio_sum = 0;
  double ratio_min = std::numeric_limits<double>::infinity();
  double ratio_max = -std::numeric_limits<double>::infinity();
  // The same over the tokens that are not stale.
  double current_tokens = 0;
  double current_ratio_sum = 0;
  double current_ratio_min = std::numeric_limits<double>::infinity();
  double current_ratio_max = -std::numeric_limits<double>::infinity();
  std::vector<float> grad_log_probs;
  std::vector<float> grad_entropy;  // empty if entropy is not part of the loss
};

// InvalidArgument names the option that is unknown or out of range.
absl::Status CheckPolicyLossOptions(const PolicyLossOptions& options);

// How the loss selects tokens of the mini-batch before its first backward pass, for
// LossTokens::selected. Requires options that CheckPolicyLossOptions accepts.
Selection SelectionOf(const PolicyLossOptions& options);

// Thread-safe, deterministic. InvalidArgument: an unknown mode or estimator, or vectors of unequal
// length; Internal: LibTorch failed.
absl::StatusOr<LossResult> ComputePolicyLoss(const LossTokens& tokens,
                                             const PolicyLossOptions& options,
                                             const LossScale& scale);

// Keeps LibTorch and OpenMP from starting threads, which would spin while they wait. Must be called
// at the start of main, and in every thread that computes losses.
void UseOneTorchThread();

}  // namespace tandem
