// geo_mean (GMPO): the geometric mean of a sequence's ratios, each clipped in the log domain.
//   d = logπ − logπ_old
//   d' = min(d, clip(d, −ε_low, ε_high)) where A > 0, max of the two where A < 0
//   L = −mean(A) exp(mean(d')) per sequence, means over its counted tokens (+1e-8 in the divisor)
// and the mean of L over the samples of the mini-batch, whatever actor.loss_agg_mode says.
// Importance weights w are applied as their geometric mean exp(mean(log(w + 1e-10))).
// Zhao et al., "Geometric-Mean Policy Optimization", arXiv 2507.20673, eq. 3 and 4. verl takes the
// mean over each micro-batch, so its result depends on the split.
#include "trainer_worker/losses/policy_loss_registry.h"
#include "trainer_worker/losses/portable_math.h"

namespace tandem {
namespace {

PolicyTerms GeoMeanTerms(const LossTensors& tensors, const PolicyLossOptions& options) {
  const at::Tensor& advantages = tensors.advantages;
  const at::Tensor difference = tensors.log_probs - tensors.old_log_probs;
  const at::Tensor cut = at::clamp(difference, -options.clip_ratio_low, options.clip_ratio_high);
  const at::Tensor sign = at::sign(advantages);
  const at::Tensor smaller = sign * at::min(sign * difference, sign * cut);
  const at::Tensor counts = RowSums(at::ones_like(tensors.mask), tensors) + 1e-8;
  const at::Tensor ratio = PortableExp(RowSums(smaller, tensors) / counts);
  at::Tensor loss = -(RowSums(advantages, tensors) / counts) * ratio;
  if (tensors.is_weights.defined()) {
    const at::Tensor logs = PortableLog(tensors.is_weights + 1e-10);
    loss = loss * PortableExp(RowSums(logs, tensors) / counts);
  }
  const at::Tensor outside = at::ne(difference, cut);
  return {.loss = loss,
          .clipped = outside & (advantages > 0),
          .clipped_dual = outside & (advantages < 0),
          .approx_kl = -difference};
}

}  // namespace

extern const PolicyLoss kGeoMeanLoss = {
    .aggregation = Aggregation::kSampleMean, .applies_is_weights = true, .terms = GeoMeanTerms};

}  // namespace tandem
