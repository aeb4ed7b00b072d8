// kl_cov: the plain ratio loss, with a penalty on the log-ratio of the few tokens with the largest
// covariance of log-prob and advantage.
//   d = logπ − logπ_old
//   L = −A exp(d), + ppo_kl_coef |d| where selected
// Selected are the max(1, floor(kl_cov_ratio N)) tokens with the largest (A − mean(A)) (logπ −
// mean(logπ)), N and the means over the counted tokens of the global mini-batch
// (token_selection.h). Nothing is clipped; actor/ppo_kl is the mean of |d|.
// Cui et al., "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models",
// arXiv 2505.22617, eq. 13 and 14. verl selects in every micro-batch.
#include "common/base/status.h"
#include "trainer_worker/losses/policy_loss_registry.h"
#include "trainer_worker/losses/portable_math.h"

namespace tandem {
namespace {

absl::Status CheckKlCov(const PolicyLossOptions& options) {
  if (options.kl_cov_ratio > 0 && options.kl_cov_ratio <= 1) return absl::OkStatus();
  return InvalidArgument("actor.policy_loss.kl_cov_ratio is {}, but must be above 0 and at most 1",
                         options.kl_cov_ratio);
}

PolicyTerms KlCovTerms(const LossTensors& tensors, const PolicyLossOptions& options) {
  const at::Tensor difference = tensors.log_probs - tensors.old_log_probs;
  const at::Tensor plain = -tensors.advantages * PortableExp(difference);
  const at::Tensor distance = difference.abs();
  return {.loss = at::where(tensors.selected, plain + options.ppo_kl_coef * distance, plain),
          .approx_kl = distance};
}

}  // namespace

extern const PolicyLoss kKlCovLoss = {
    .selection = Selection::kKlCov, .check = CheckKlCov, .terms = KlCovTerms};

}  // namespace tandem
