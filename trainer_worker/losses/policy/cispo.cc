// cispo: REINFORCE weighted by a clipped ratio without gradient, so that every token keeps a
// gradient.
//   d = clamp(logπ − logπ_old, ±20), r = exp(d)
//   L = −sg(clip(r, 1 − ε_low, 1 + ε_high)) A logπ
// MiniMax, "MiniMax-M1", arXiv 2506.13585, eq. 4 and 5. A token counts as clipped if its ratio is
// outside the range, whatever the sign of A.
#include "trainer_worker/losses/policy_loss_registry.h"
#include "trainer_worker/losses/portable_math.h"

namespace tandem {
namespace {

PolicyTerms CispoTerms(const LossTensors& tensors, const PolicyLossOptions& options) {
  const at::Tensor difference = ClampedLogRatio(tensors).detach();
  const at::Tensor ratio = PortableExp(difference);
  const at::Tensor clipped = ClipRatio(ratio, options);
  return {.loss = -clipped * tensors.advantages * tensors.log_probs,
          .clipped = at::ne(ratio, clipped),
          .approx_kl = -difference};
}

}  // namespace

extern const PolicyLoss kCispoLoss = {.terms = CispoTerms};

}  // namespace tandem
