// How many tokens the rollouts prefill in some time, as they count them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <absl/status/status.h>

#include "controller/workers/worker_pool.h"

namespace tandem {

// Asks every rollout, one after another; nobody is marked lost for not answering. Not thread-safe.
class PrefillMeter {
 public:
  // Begins to count. `pool` must outlive it.
  explicit PrefillMeter(WorkerPool& pool);

  // Since then: prompts and what continued samples came with, whoever asked for them, and what was
  // preempted again. Nothing where a rollout did not answer then or now, or is another by now.
  std::optional<int64_t> Tokens() const;

 private:
  struct Count {
    int64_t incarnation = 0;
    int64_t tokens = 0;
  };
  static std::optional<std::vector<Count>> Read(WorkerPool& pool);

  WorkerPool& pool_;
  const std::optional<std::vector<Count>> before_;  // by rank
};

// A call made on several rollouts at once.
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
