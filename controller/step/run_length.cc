#include "controller/step/run_length.h"

#include <algorithm>

namespace tandem {

int64_t StepsWithin(const LengthLimit& limit, int64_t total, const MeasuredStep& measured) {
  if (!limit.enabled() || measured.step_time <= absl::ZeroDuration()) return total;
  absl::Duration rest;
  const absl::Duration left = limit.time - measured.spent;
  const int64_t fit =
      left > absl::ZeroDuration() ? absl::IDivDuration(left, measured.step_time, &rest) : 0;
  // Compared before they are added: what fits may be nearly as large as an int64_t.
  if (fit >= total) return total;
  return std::min(std::max(measured.step + fit, limit.fewest), total);
}

}  // namespace tandem
