// The common part of dppo_tv and dppo_kl: REINFORCE weighted by a ratio without gradient, for the
// tokens within the trust region of a divergence between the two policies.
#pragma once

#include "trainer_worker/losses/policy_loss_registry.h"
#include "trainer_worker/losses/portable_math.h"

namespace tandem {

// L = −A sg(min(r, c)) logπ for the tokens with `valid`, else 0; r = exp(clamp(logπ − logπ_old,
// ±20)), c = clip_ratio_c. Metrics: clipped counts tokens that are not valid, clipped_dual valid
// ones with r above c.
inline PolicyTerms DivergenceClip(const LossTensors& tensors,
                                  const PolicyLossOptions& options,
                                  const at::Tensor& valid) {
  const at::Tensor difference = ClampedLogRatio(tensors).detach();
  const at::Tensor ratio = PortableExp(difference);
  const at::Tensor weight =
      at::clamp_max(ratio, options.clip_ratio_c) * valid.to(tensors.advantages.dtype());
  return {.loss = -tensors.advantages * weight * tensors.log_probs,
          .clipped = valid.logical_not(),
          .clipped_dual = valid & (ratio > options.clip_ratio_c),
          .approx_kl = -difference};
}

}  // namespace tandem
