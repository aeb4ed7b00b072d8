// A call made on several rollouts at once.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <absl/status/status.h>

#include "controller/workers/worker_pool.h"

namespace tandem {

using RolloutCall = std::function<absl::Status(RolloutClient&, int rank)>;

struct RolloutAnswer {
  int rank = 0;
  std::shared_ptr<RolloutClient> client;  // that was asked; null: nobody was there
  absl::Status status;
};

// Runs `call` on the rollouts of `ranks`, a thread for each, and returns all answers, in the order
// of `ranks`. Unavailable: that one is gone; it is marked lost. Once `interrupted` (polled; empty:
// never) says so, the calls under way end with Cancelled.
std::vector<RolloutAnswer> AskRollouts(WorkerPool& pool,
                                       const std::vector<int>& ranks,
                                       const RolloutCall& call,
                                       const std::function<bool()>& interrupted = {});

// OK if all are. Otherwise the code of the first failure that no recovery mends, or of the first,
// and a message that names every rollout that failed (of many the first few, and how many more).
absl::Status AllAnswered(const std::vector<RolloutAnswer>& answers);

// Of all of the pool.
std::vector<int> AllRanks(const WorkerPool& pool);

}  // namespace tandem
