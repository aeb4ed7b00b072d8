#include "controller/rollouts/abort_requests.h"

#include <thread>

#include "common/base/check.h"
#include "common/base/log.h"

namespace tandem {

void AbortRequests(const std::vector<RequestsToAbort>& wanted) {
  std::vector<std::jthread> threads;
  for (const RequestsToAbort& of_rollout : wanted) {
    // No ids at all would mean every request of the rollout.
    TANDEM_CHECK(!of_rollout.request_ids.empty(), "there must be a request to abort");
    threads.emplace_back([&of_rollout] {
      const absl::Status status = of_rollout.client->Abort(of_rollout.request_ids);
      if (status.ok()) return;
      LogWarn("rollout {} could not abort {} requests: {}", of_rollout.rank,
              of_rollout.request_ids.size(), std::string(status.message()));
    });
  }
}

}  // namespace tandem
