#include "common/base/clock.h"

namespace tandem {
namespace {
class SystemClock final : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
  void Sleep(absl::Duration duration) override { absl::SleepFor(duration); }
};
}  // namespace

Clock& RealClock() {
  static SystemClock clock;
  return clock;
}

}  // namespace tandem
