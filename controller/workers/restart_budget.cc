#include "controller/workers/restart_budget.h"

#include <iterator>

#include <fmt/format.h>

#include "common/base/status.h"

namespace tandem {

absl::Status RestartBudget::Charge(WorkerRole role, const absl::Status& reason) {
  constexpr int kAttemptsPerIncident = 4;
  if (attempts_ > 0 && attempts_ < kAttemptsPerIncident) {
    ++attempts_;
    return absl::OkStatus();
  }
  const Instant now = clock_.Now();
  std::deque<Instant>& recent = incidents_[role];
  while (!recent.empty() && now - recent.front() > window_) recent.pop_front();
  if (std::ssize(recent) >= limit_) {
    gave_up_ = true;
    absl::Status used_up =
        Internal("gave up after {} {} (cluster.max_restarts): {}", recent.size(),
                 recent.size() == 1 ? "recovery" : "recoveries", std::string(reason.message()));
    // Keeps the ErrorInfo, so that the message names the worker.
    reason.ForEachPayload([&used_up](absl::string_view url, const absl::Cord& payload) {
      used_up.SetPayload(url, payload);
    });
    return used_up;
  }
  recent.push_back(now);
  newest_ = std::ssize(recent);
  ++spent_;
  attempts_ = 1;
  return absl::OkStatus();
}

std::string RestartBudget::RecoveringFrom(const absl::Status& reason) const {
  return fmt::format("recovering ({} of {}): {}", newest_, limit_, std::string(reason.message()));
}

}  // namespace tandem
