#include "controller/algorithm/kl_controller.h"

#include <algorithm>
#include <cmath>

namespace tandem {

double NextKlCoef(const KlControl& control, double coef, double kl, int64_t samples) {
  if (!control.adaptive || !std::isfinite(kl)) return coef;
  const double error = std::clamp(kl / control.target - 1, -0.2, 0.2);
  return coef * (1 + error * static_cast<double>(samples) / control.horizon);
}

}  // namespace tandem
