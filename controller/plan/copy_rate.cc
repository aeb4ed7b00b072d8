#include "controller/plan/copy_rate.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "common/base/clock.h"

namespace tandem {
namespace {

constexpr size_t kBytes = size_t{32} << 20;
constexpr absl::Duration kLongest = absl::Milliseconds(100);

}  // namespace

double MeasureCopyRate() {
  const std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes, 2);  // pages that are there already: their first touch is slow
  Clock& clock = RealClock();
  const Instant begin = clock.Now();
  double best = 0;
  for (Instant start = begin; start - begin < kLongest || best == 0;) {
    std::memcpy(to.data(), from.data(), kBytes);
    const Instant end = clock.Now();
    // What was copied is looked at, so that no compiler leaves the copy out.
    const double seconds = absl::ToDoubleSeconds(end - start) + 1e-9 * (to[kBytes / 2] - 1);
    if (seconds > 0) best = std::max(best, static_cast<double>(kBytes) / seconds);
    start = end;
  }
  return best;
}

}  // namespace tandem
