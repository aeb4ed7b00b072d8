// dro: a quadratic penalty on the log-ratio in place of the clip.
//   d = logπ − logπ_old
//   L = −(A logπ − β/2 d²), β = actor.policy_loss.dro_beta
// Richemond et al., "Offline Regularised Reinforcement Learning for Large Language Models
// Alignment", arXiv 2405.19107, with the advantage in place of reward minus value.
#include "common/base/status.h"
#include "trainer_worker/losses/policy_loss_registry.h"

namespace tandem {
namespace {

absl::Status CheckDro(const PolicyLossOptions& options) {
  if (options.dro_beta.has_value() && *options.dro_beta > 0) return absl::OkStatus();
  return InvalidArgument(
      "actor.policy_loss.loss_mode=dro needs actor.policy_loss.dro_beta above 0, the weight of its "
      "penalty on the log-ratio; it has no default");
}

PolicyTerms DroTerms(const LossTensors& tensors, const PolicyLossOptions& options) {
  const at::Tensor difference = tensors.log_probs - tensors.old_log_probs;
  const at::Tensor gain = tensors.advantages * tensors.log_probs;
  return {.loss = 0.5 * options.dro_beta.value() * difference.square() - gain,
          .approx_kl = -difference};
}

}  // namespace

extern const PolicyLoss kDroLoss = {.check = CheckDro, .terms = DroTerms};

}  // namespace tandem
