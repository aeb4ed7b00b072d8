// dppo_kl: a trust region by the KL divergence of "this token or another one".
//   K = π_old log(π_old / π) + (1 − π_old) log((1 − π_old + 1e-8) / (1 − π + 1e-8))
//   L = −A sg(min(r, c)) logπ while K <= ε (ε_high where A > 0, else ε_low), and wherever the step
//   leads back to π_old: A > 0 and π <= π_old, or A <= 0 and π >= π_old
// K and both probabilities are rounded to fp32 after every operation, as verl's are: for very
// improbable tokens K is all rounding, and with ε = 0 its sign decides. c = clip_ratio_c.
// Qi et al., "Rethinking the Trust Region in LLM Reinforcement Learning" (DPPO), arXiv 2602.04879.
#include "trainer_worker/losses/policy/divergence_clip.h"

namespace tandem {
namespace {

constexpr double kEdge = 1e-8;  // keeps the quotient finite where a probability is 1

PolicyTerms DppoKlTerms(const LossTensors& tensors, const PolicyLossOptions& options) {
  const at::Tensor now = tensors.log_probs.detach();
  const at::Tensor& old = tensors.old_log_probs;
  const at::Tensor to = PortableExp(now), from = PortableExp(old);
  const at::Tensor others = PortableLog((1.0 - from + kEdge) / (1.0 - to + kEdge));
  const at::Tensor divergence = from * (old - now) + (1.0 - from) * others;
  const at::Tensor valid =
      at::where(tensors.advantages > 0, (divergence <= options.clip_ratio_high) | (to <= from),
                (divergence <= options.clip_ratio_low) | (to >= from));
  return DivergenceClip(tensors, options, valid);
}

}  // namespace

extern const PolicyLoss kDppoKlLoss = {.terms = DppoKlTerms};

}  // namespace tandem
