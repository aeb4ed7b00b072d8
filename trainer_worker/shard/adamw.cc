#include "trainer_worker/shard/adamw.h"

#include <algorithm>
#include <cmath>

namespace tandem {

AdamWFactors FactorsOf(const AdamWOptions& options, double lr, int64_t step, float gradient_scale) {
  const double correction1 = 1 - std::pow(options.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(options.beta2, static_cast<double>(step));
  AdamWFactors factors;
  factors.gradient_scale = gradient_scale;
  factors.weight1 = static_cast<float>(1 - options.beta1);
  factors.beta2 = static_cast<float>(options.beta2);
  factors.weight2 = static_cast<float>(1 - options.beta2);
  factors.decay = static_cast<float>(1 - lr * options.weight_decay);
  factors.step_size = static_cast<float>(lr / correction1);
  factors.root2 = static_cast<float>(std::sqrt(correction2));
  factors.eps = static_cast<float>(options.eps);
  return factors;
}

float ClipFactor(double norm, double max_norm) {
  return std::min(1.0f, static_cast<float>(max_norm) / (static_cast<float>(norm) + 1e-6f));
}

}  // namespace tandem
