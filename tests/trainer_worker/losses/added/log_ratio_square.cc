// log_ratio_square: a loss of added_loss_test, as a user would add it.
//   L = −A d + c d² / 2, d = clamp(logπ − logπ_old, ±20), c = actor.clip_ratio_c
#include "trainer_worker/losses/policy_loss_registry.h"

namespace tandem {
namespace {

PolicyTerms Terms(const LossTensors& tensors, const PolicyLossOptions& options) {
  const at::Tensor difference = ClampedLogRatio(tensors);
  return {
      .loss = -tensors.advantages * difference + 0.5 * options.clip_ratio_c * difference.square(),
      .approx_kl = -difference};
}

}  // namespace

extern const PolicyLoss kLogRatioSquareLoss = {.terms = Terms};

}  // namespace tandem
