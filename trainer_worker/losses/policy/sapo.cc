// sapo: a soft gate instead of the clip.
//   d = clamp(logπ − logπ_old, ±20), r = exp(d)
//   L = −A σ(τ (r − 1)) 4 / τ, τ = tau_pos where A > 0, else tau_neg; always seq-mean-token-mean
// Gao et al., "Soft Adaptive Policy Optimization", arXiv 2511.20347, eq. 5 and 6. At r = 1 the
// gradient is vanilla's: σ'(0) 4 = 1. Nothing is clipped, so the clip fraction is 0.
#include "common/base/status.h"
#include "trainer_worker/losses/policy_loss_registry.h"
#include "trainer_worker/losses/portable_math.h"

namespace tandem {
namespace {

absl::Status CheckSapo(const PolicyLossOptions& options) {
  if (options.tau_pos > 0 && options.tau_neg > 0) return absl::OkStatus();
  return InvalidArgument(
      "actor.tau_pos is {} and actor.tau_neg is {}, but sapo divides by them: "
      "both must be above 0",
      options.tau_pos, options.tau_neg);
}

PolicyTerms SapoTerms(const LossTensors& tensors, const PolicyLossOptions& options) {
  const at::Tensor difference = ClampedLogRatio(tensors);
  const at::Tensor positive = tensors.advantages > 0;
  const at::Tensor tau =
      at::where(positive, at::scalar_tensor(options.tau_pos, tensors.advantages.options()),
                at::scalar_tensor(options.tau_neg, tensors.advantages.options()));
  const at::Tensor gate = PortableSigmoid(tau * (PortableExp(difference) - 1)) * (4.0 / tau);
  return {.loss = -gate * tensors.advantages, .approx_kl = -difference};
}

}  // namespace

extern const PolicyLoss kSapoLoss = {
    .aggregation = Aggregation::kSeqMeanTokenMean, .check = CheckSapo, .terms = SapoTerms};

}  // namespace tandem
