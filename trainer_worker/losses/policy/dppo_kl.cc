// dppo_kl: a trust region by the KL divergence of "this token or another one".
//   K = π_old log(π_old / π) + (1 − π_old) log((1 − π_old) / (1 − π))
//   L = −A sg(min(r, c)) logπ while K <= ε (ε_high where A > 0, else ε_low), and wherever the step
//   leads back to π_old: A > 0 and π <= π_old, or A <= 0 and π >= π_old
// Probabilities in K are kept 1e-8 away from 0 and 1; c = clip_ratio_c.
// Qi et al., "Rethinking the Trust Region in LLM Reinforcement Learning" (DPPO), arXiv 2602.04879.
#include <algorithm>
#include <cmath>

#include "trainer_worker/losses/policy/divergence_clip.h"

namespace tandem {
namespace {

constexpr double kEdge = 1e-8;

double Probability(double log_prob) { return std::clamp(std::exp(log_prob), kEdge, 1 - kEdge); }

double BinaryKl(double from, double to) {
  return from * std::log(from / to) + (1 - from) * std::log((1 - from) / (1 - to));
}

PolicyTerms DppoKlTerms(const LossTensors& tensors, const PolicyLossOptions& options) {
  const at::Tensor now = tensors.log_probs.detach().to(at::kDouble).contiguous();
  const at::Tensor old = tensors.old_log_probs.to(at::kDouble).contiguous();
  const at::Tensor advantages = tensors.advantages.to(at::kDouble).contiguous();
  const at::Tensor valid = at::empty({now.numel()}, at::kBool);
  const double* log_prob = now.data_ptr<double>();
  const double* old_log_prob = old.data_ptr<double>();
  const double* advantage = advantages.data_ptr<double>();
  for (int64_t i = 0; i < now.numel(); ++i) {
    const bool up = advantage[i] > 0;
    const bool back = up ? log_prob[i] <= old_log_prob[i] : log_prob[i] >= old_log_prob[i];
    const double bound = up ? options.clip_ratio_high : options.clip_ratio_low;
    valid.data_ptr<bool>()[i] =
        back || BinaryKl(Probability(old_log_prob[i]), Probability(log_prob[i])) <= bound;
  }
  return DivergenceClip(tensors, options, valid);
}

}  // namespace

extern const PolicyLoss kDppoKlLoss = {.terms = DppoKlTerms};

}  // namespace tandem
