// Calls to several rollouts at once, and the number of tokens that the rollouts prefill.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <absl/status/status.h>

#include "controller/workers/worker_pool.h"

namespace tandem {

// Counts the tokens that all rollouts prefill from the construction of the counter on. Marks no
// rollout lost that does not answer. Not thread-safe.
class PrefillTokenCounter {
 public:
  // `pool` must outlive the counter.
  explicit PrefillTokenCounter(WorkerPool& pool);

  // Prefilled tokens of all requests, from any caller: prompts, tokens that continued samples came
  // with, and tokens computed again after a preemption. Nullopt if a rollout did not answer at the
  // construction or now, or was replaced since.
  std::optional<int64_t> Tokens() const;

 private:
  struct Count {
    int rank = 0;
    int64_t incarnation = 0;
    int64_t tokens = 0;
  };
  static std::optional<std::vector<Count>> Read(WorkerPool& pool);

  WorkerPool& pool_;
  const std::optional<std::vector<Count>> before_;  // of those that take part, by rank
};

// Starts a call to one of several rollouts, whose end `done` hears of.
using RolloutCall = std::function<void(RolloutClient&, int rank, StatusDone done)>;

struct RolloutAnswer {
  int rank = 0;
  std::shared_ptr<RolloutClient> client;  // null: no rollout of this rank was ready
  absl::Status status;
};

// Makes `call` on the rollouts of `ranks` at once, without a thread for each, and returns all
// answers in the order of `ranks`. A rollout whose answer is Unavailable is marked lost.
// `interrupted` is polled; when it returns true, calls that are under way end with Cancelled. An
// empty `interrupted` never does.
std::vector<RolloutAnswer> CallRollouts(WorkerPool& pool,
                                        const std::vector<int>& ranks,
                                        const RolloutCall& call,
                                        const std::function<bool()>& interrupted = {});

// OK if all answers are OK. Otherwise the code of the first failure that a recovery cannot repair,
// or else of the first failure, and a message that names the failed rollouts: the first eight, and
// how many more.
absl::Status AllAnswered(const std::vector<RolloutAnswer>& answers);

// Of the rollouts that take part, ascending.
std::vector<int> AllRanks(const WorkerPool& pool);

}  // namespace tandem
