#include "controller/restart_budget.h"

#include "common/base/status_macros.h"

namespace tandem {

absl::Status RestartBudget::Spend(const absl::Status& reason) {
  constexpr int kAttemptsPerIncident = 4;
  if (attempts_ > 0 && attempts_ < kAttemptsPerIncident) {
    ++attempts_;
    return absl::OkStatus();
  }
  if (spent_ >= limit_) {
    return Annotate(reason,
                    fmt::format("gave up after {} recoveries (cluster.max_restarts)", spent()));
  }
  ++spent_;
  attempts_ = 1;
  return absl::OkStatus();
}

}  // namespace tandem
