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

// One entry per token in every vector; vectors marked optional may be empty.
struct LossTokens {
  std::vector<float> log_probs;      // under the policy that is being trained
  std::vector<float> old_log_probs;  // under the policy that sampled
  std::vector<float> advantages;
  std::vector<float> ref_log_probs;  // optional; needed with use_kl_loss
  std::vector<float> entropy;        // optional; needed with entropy_coeff != 0
  std::vector<float> is_weights;     // optional: factors of the policy loss; not in bypass mode
  std::vector<float> mask;           // optional, 0 or 1; empty: every token counts
  std::vector<int64_t> rows;         // optional: sequence of each token; whole sequences only
  std::vector<uint8_t> selected;     // optional; needed where the loss selects tokens
  std::vector<uint8_t> stale;        // optional, 1: older weights than the step's sampled it
  int64_t num_rows = 1;
};

// Sums are over tokens with mask 1 that bypass mode does not reject, so that micro-batches and
// ranks add up.
struct LossResult {
  double loss = 0;         // what is minimised: this micro-batch's share
  double policy_loss = 0;  // aggregated terms of it, without their factors
  double kl_loss = 0;
  double entropy = 0;
  double tokens = 0;
  double clipped_sum = 0;
  double clipped_dual_sum = 0;
  double approx_kl_sum = 0;  // of old - new log-prob
  // Of exp(new - old log-prob), the difference clamped to ±20.
  double ratio_sum = 0;
  double ratio_min = std::numeric_limits<double>::infinity();
  double ratio_max = -std::numeric_limits<double>::infinity();
  // The same of the tokens that are not stale.
  double current_tokens = 0;
  double current_ratio_sum = 0;
  double current_ratio_min = std::numeric_limits<double>::infinity();
  double current_ratio_max = -std::numeric_limits<double>::infinity();
  std::vector<float> grad_log_probs;
  std::vector<float> grad_entropy;  // empty where entropy does not enter the loss
};

// InvalidArgument names the option that is out of range or unknown.
absl::Status CheckPolicyLossOptions(const PolicyLossOptions& options);

// What the loss selects over the mini-batch before its first backward pass: LossTokens::selected.
// For options that CheckPolicyLossOptions accepts.
Selection SelectionOf(const PolicyLossOptions& options);

// Thread-safe, deterministic. InvalidArgument: unknown mode or estimator, vectors of unequal
// length; Internal: LibTorch failed.
absl::StatusOr<LossResult> ComputePolicyLoss(const LossTokens& tokens,
                                             const PolicyLossOptions& options,
                                             const LossScale& scale);

// Keeps LibTorch and OpenMP from starting threads, which would spin while they wait: call first
// thing in main, and in every thread that computes losses.
void UseOneTorchThread();

}  // namespace tandem
