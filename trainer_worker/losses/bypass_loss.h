// The policy loss of algorithm.rollout_correction.bypass_mode: the old policy is the rollout's, and
// rejection and importance weights come from the policy that is being trained, in the loss itself.
//   ppo_clip:  vanilla; its ratio is the importance weight already, so no other is applied
//   reinforce: L = -w A log-prob, w = sg(weight) of rollout_is, or 1 without it
// each over the tokens that rollout_rs keeps. verl 0.9.1, core_algos.py (bypass_mode) and
// docs/algo/rollout_corr_math.md.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/rollout_correction/rollout_correction.h"
#include "trainer_worker/losses/policy_loss.h"

namespace tandem {

struct BypassOptions {
  RolloutCorrectionOptions correction;
  std::string loss_type = "ppo_clip";  // or reinforce
};

// What the correction makes of whole sequences, one entry per token in the order given.
struct BypassCorrection {
  std::vector<float> weights;             // empty without rollout_is
  std::vector<float> mask;                // 0 or 1: LossTokens::mask and what is kept
  std::map<std::string, double> metrics;  // rollout_corr/..., of these tokens
};

// Of tokens.log_probs against tokens.old_log_probs, the rollout's. Weights and mask of a sequence
// are a function of it alone, so that no packing shows, unless weights are normalized.
// InvalidArgument: options that cannot be read, or no token that counts.
absl::StatusOr<BypassCorrection> CorrectInBypass(const LossTokens& tokens,
                                                 const RolloutCorrectionOptions& options);

// The policy loss alone: tokens have no entropy, reference or weights. Counts of `scale` that are
// absent are those after rejection; those that are given stand, as in verl. InvalidArgument:
// unknown loss_type; else as CorrectInBypass and ComputePolicyLoss.
absl::StatusOr<LossResult> ComputeBypassLoss(const LossTokens& tokens,
                                             const BypassOptions& bypass,
                                             const PolicyLossOptions& options,
                                             const LossScale& scale);

}  // namespace tandem
