// The coefficient of the KL penalty in the reward, fixed or steered (verl core_algos
// FixedKLController and AdaptiveKLController; Ziegler et al. 2019, "Fine-Tuning Language Models
// from Human Preferences", section 2.2).
#pragma once

#include <cstdint>

namespace tandem {

struct KlControl {
  bool adaptive = false;
  double target = 0.1;     // KL per token, nats; > 0
  double horizon = 10000;  // samples; > 0
};

// The coefficient of the step after one that had `coef`, `samples` samples and this KL: fixed the
// same, adaptive coef * (1 + clip(kl / target - 1, -0.2, 0.2) * samples / horizon). A KL that is
// not finite changes nothing: it would stay in the coefficient for good. Pure.
double NextKlCoef(const KlControl& control, double coef, double kl, int64_t samples);

}  // namespace tandem
