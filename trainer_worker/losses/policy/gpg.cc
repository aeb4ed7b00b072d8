// gpg: the plain policy gradient, without a ratio.
//   L = −A logπ
// Chu et al., "GPG: A Simple and Strong Reinforcement Learning Baseline for Model Reasoning", arXiv
// 2504.02546, eq. 4. Nothing is clipped. verl reports no metrics; here actor/ppo_kl is the mean of
// logπ_old − logπ, not clamped, as in verl's bypass mode with reinforce, which is this loss.
#include "trainer_worker/losses/policy_loss_registry.h"

namespace tandem {
namespace {

PolicyTerms GpgTerms(const LossTensors& tensors, const PolicyLossOptions&) {
  return {.loss = -tensors.log_probs * tensors.advantages,
          .approx_kl = tensors.old_log_probs - tensors.log_probs};
}

}  // namespace

extern const PolicyLoss kGpgLoss = {.terms = GpgTerms};

}  // namespace tandem
