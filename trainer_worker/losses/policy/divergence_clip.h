// What dppo_tv and dppo_kl have in common: REINFORCE weighted by a ratio without gradient, for the
// tokens that a divergence between the two policies lets through.
#pragma once

#include "trainer_worker/losses/policy_loss_registry.h"
#include "trainer_worker/losses/portable_math.h"

namespace tandem {

// L = −A sg(min(r, c)) logπ for the tokens where `valid`, else 0; r = exp(clamp(logπ − logπ_old,
// ±20)), c = clip_ratio_c. Clipped: not valid; clipped_dual: valid, and r above c.
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
