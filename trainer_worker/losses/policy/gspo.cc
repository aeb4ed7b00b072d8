// gspo: vanilla clipping of one ratio per sequence, the geometric mean of its tokens' ratios.
//   s = mean over the sequence's counted tokens of (logπ − logπ_old)
//   r = exp(min(logπ − sg(logπ) + sg(s), 10)): the sequence's value, each token's own gradient
//   L = max(−A r, −A clip(r, 1 − ε_low, 1 + ε_high)), no dual clip
// Zheng et al., "Group Sequence Policy Optimization", arXiv 2507.18071, eq. 7 and 14 (GSPO-token).
// The paper aggregates by seq-mean-token-mean, and its ε are about 3e-4 and 4e-4. A micro-batch
// holds complete sequences, so s is over all of a sequence's tokens.
#include "trainer_worker/losses/policy_loss_registry.h"
#include "trainer_worker/losses/portable_math.h"

namespace tandem {
namespace {

PolicyTerms GspoTerms(const LossTensors& tensors, const PolicyLossOptions& options) {
  const at::Tensor difference = tensors.log_probs - tensors.old_log_probs;
  const at::Tensor counts = at::clamp_min(RowSums(at::ones_like(tensors.mask), tensors), 1);
  const at::Tensor means = RowSums(difference.detach(), tensors) / counts;
  const at::Tensor exponent =
      tensors.log_probs - tensors.log_probs.detach() + means.index_select(0, tensors.rows);
  const at::Tensor ratio = PortableExp(at::clamp_max(exponent, 10.0));
  const at::Tensor plain = -tensors.advantages * ratio;
  const at::Tensor clipped = -tensors.advantages * ClipRatio(ratio, options);
  return {
      .loss = at::max(plain, clipped), .clipped = at::gt(clipped, plain), .approx_kl = -difference};
}

}  // namespace

extern const PolicyLoss kGspoLoss = {.terms = GspoTerms};

}  // namespace tandem
