// How many tokens the rollouts prefill in some time, as they count them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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

}  // namespace tandem
