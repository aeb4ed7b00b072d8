// clip_cov: PPO whose loss is zeroed for a few tokens with a large covariance of log-prob and
// advantage, as those make the entropy fall.
//   d = logπ − logπ_old, r = exp(d)
//   L = max(−A r, −A clip(r, 1 − ε_low, 1 + ε_high)), 0 where selected, no dual clip
// Selected are max(1, floor(clip_cov_ratio N)) random tokens among those that are not clipped and
// have
//   clip_cov_lb < (A − mean(A)) (logπ − mean(logπ)) < clip_cov_ub
// with N and the means over the counted tokens of the global mini-batch (token_selection.h).
// Cui et al., "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models",
// arXiv 2505.22617, eq. 10 to 12. verl selects in every micro-batch, by an unseeded permutation.
#include "common/base/status.h"
#include "trainer_worker/losses/policy_loss_registry.h"
#include "trainer_worker/losses/portable_math.h"

namespace tandem {
namespace {

absl::Status CheckClipCov(const PolicyLossOptions& options) {
  if (!(options.clip_cov_ratio > 0)) {
    return InvalidArgument("actor.policy_loss.clip_cov_ratio is {}, but must be above 0",
                           options.clip_cov_ratio);
  }
  if (options.clip_cov_lb < options.clip_cov_ub) return absl::OkStatus();
  return InvalidArgument(
      "actor.policy_loss.clip_cov_lb is {} and clip_cov_ub is {}: no covariance is between them",
      options.clip_cov_lb, options.clip_cov_ub);
}

PolicyTerms ClipCovTerms(const LossTensors& tensors, const PolicyLossOptions& options) {
  const at::Tensor difference = tensors.log_probs - tensors.old_log_probs;
  const at::Tensor ratio = PortableExp(difference);
  const at::Tensor larger =
      at::max(-tensors.advantages * ratio, -tensors.advantages * ClipRatio(ratio, options));
  const at::Tensor kept = tensors.selected.logical_not().to(larger.dtype());
  return {.loss = larger * kept, .clipped = tensors.selected, .approx_kl = -difference};
}

}  // namespace

extern const PolicyLoss kClipCovLoss = {
    .selection = Selection::kClipCov, .check = CheckClipCov, .terms = ClipCovTerms};

}  // namespace tandem
