// Options of the policy loss: plain values with the meaning of verl's keys of the same names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/rollout_correction/rollout_correction.h"

namespace tandem {

// How token losses become one number (loss_agg_mode), and the counts of the global mini-batch.
struct LossScale {
  // token-mean, token-sum, seq-mean-token-sum, seq-mean-token-mean or seq-mean-token-sum-norm.
  std::string mode = "token-mean";
  // Above 1 if gradients are averaged over ranks; Tandem sums them, so it passes 1.
  int64_t dp_size = 1;
  std::optional<double> batch_tokens;       // absent: the tokens of the call
  std::optional<double> batch_samples;      // absent: the sequences of the call with a token
  std::optional<double> loss_scale_factor;  // for seq-mean-token-sum-norm; absent: horizon
  double horizon = 1;                       // width of the padded responses, in tokens
};

// The options of algorithm.rollout_correction with bypass_mode (bypass_loss.h).
struct BypassOptions {
  RolloutCorrectionOptions correction;
  std::string loss_type = "ppo_clip";  // ppo_clip or reinforce
};

struct PolicyLossOptions {
  std::string loss_mode = "vanilla";    // a name from PolicyLossNames
  std::optional<BypassOptions> bypass;  // if set, its loss_type replaces loss_mode
  double clip_ratio_low = 0.2;
  double clip_ratio_high = 0.2;
  double clip_ratio_c = 3.0;       // must be above 1
  double tau_pos = 1.0;            // sapo: must be above 0
  double tau_neg = 1.05;           // sapo: must be above 0
  std::optional<double> dro_beta;  // required by dro, above 0
  double clip_cov_ratio = 2e-4;    // clip_cov: share of the tokens, above 0
  double clip_cov_lb = 1.0;
  double clip_cov_ub = 5.0;
  double kl_cov_ratio = 2e-4;  // kl_cov: share of the tokens, above 0
  double ppo_kl_coef = 0.1;    // kl_cov
  bool use_kl_loss = false;
  double kl_loss_coef = 0.001;
  std::string kl_loss_type = "low_var_kl";
  double entropy_coeff = 0.0;
};

}  // namespace tandem
