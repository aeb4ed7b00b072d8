// dppo_tv: a trust region by the change of the token's probability, the total variation of "this
// token or another one".
//   L = −A sg(min(r, c)) logπ while π − π_old <= ε_high (where A > 0) or π − π_old >= −ε_low (else)
// ε_low and ε_high are differences of probabilities, c = clip_ratio_c.
// Qi et al., "Rethinking the Trust Region in LLM Reinforcement Learning" (DPPO), arXiv 2602.04879.
#include "trainer_worker/losses/policy/divergence_clip.h"

namespace tandem {
namespace {

PolicyTerms DppoTvTerms(const LossTensors& tensors, const PolicyLossOptions& options) {
  const at::Tensor change =
      PortableExp(tensors.log_probs.detach()) - PortableExp(tensors.old_log_probs);
  const at::Tensor valid = at::where(tensors.advantages > 0, change <= options.clip_ratio_high,
                                     change >= -options.clip_ratio_low);
  return DivergenceClip(tensors, options, valid);
}

}  // namespace

extern const PolicyLoss kDppoTvLoss = {.terms = DppoTvTerms};

}  // namespace tandem
