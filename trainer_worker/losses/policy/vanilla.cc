// vanilla: PPO with clipping from both sides and dual clip.
//   d = clamp(logπ − logπ_old, ±20), r = exp(d)
//   L = max(−A r, −A clip(r, 1 − ε_low, 1 + ε_high)); where A < 0: min(L, −A c)
// Schulman et al., "Proximal Policy Optimization Algorithms", arXiv 1707.06347, eq. 7; two ranges:
// Yu et al., "DAPO", arXiv 2503.14476; dual clip c: Ye et al., "Mastering Complex Control in MOBA
// Games with Deep Reinforcement Learning", arXiv 1912.09729, eq. 5.
#include "trainer_worker/losses/policy_loss_registry.h"
#include "trainer_worker/losses/portable_math.h"

namespace tandem {
namespace {

PolicyTerms VanillaTerms(const LossTensors& tensors, const PolicyLossOptions& options) {
  const at::Tensor& advantages = tensors.advantages;
  const at::Tensor difference = ClampedLogRatio(tensors);
  const at::Tensor ratio = PortableExp(difference);
  const at::Tensor plain = -advantages * ratio;
  const at::Tensor clipped = -advantages * ClipRatio(ratio, options);
  const at::Tensor larger = at::max(plain, clipped);
  const at::Tensor bound = -advantages * options.clip_ratio_c;
  const at::Tensor negative = advantages < 0;
  return {.loss = at::where(negative, at::min(bound, larger), larger),
          .clipped = at::gt(clipped, plain),
          .clipped_dual = at::gt(larger, bound) & negative,
          .approx_kl = -difference};
}

}  // namespace

extern const PolicyLoss kVanillaLoss = {.terms = VanillaTerms};

}  // namespace tandem
