#include "controller/workers/rollout_calls.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "common/base/mutex.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "controller/workers/trainer_calls.h"

namespace tandem {

PrefillTokenCounter::PrefillTokenCounter(WorkerPool& pool) : pool_(pool), before_(Read(pool)) {}

std::optional<int64_t> PrefillTokenCounter::Tokens() const {
  if (!before_) return std::nullopt;
  const auto now = Read(pool_);
  if (!now) return std::nullopt;
  int64_t tokens = 0;
  for (size_t rank = 0; rank < now->size(); ++rank) {
    const Count &from = (*before_)[rank], &to = (*now)[rank];
    if (from.incarnation != to.incarnation) return std::nullopt;
    tokens += to.tokens - from.tokens;
  }
  return tokens;
}

std::optional<std::vector<PrefillTokenCounter::Count>> PrefillTokenCounter::Read(WorkerPool& pool) {
  std::vector<Count> counts;
  for (int rank = 0; rank < pool.pairs(); ++rank) {
    const auto rollout = pool.rollout(rank);
    if (!rollout.ok()) return std::nullopt;
    const auto tokens = (*rollout)->PrefilledTokens();
    if (!tokens.ok()) return std::nullopt;
    counts.push_back({(*rollout)->incarnation(), *tokens});
  }
  return counts;
}

std::vector<RolloutAnswer> CallRollouts(WorkerPool& pool,
                                        const std::vector<int>& ranks,
                                        const RolloutCall& call,
                                        const std::function<bool()>& interrupted) {
  std::vector<RolloutAnswer> answers(ranks.size());
  struct {
    Mutex mutex;
    ConditionVariable changed;
    size_t running ABSL_GUARDED_BY(mutex);
    std::vector<std::shared_ptr<RolloutClient>> clients ABSL_GUARDED_BY(mutex);  // that are called
  } calls{.running = ranks.size(), .clients = {}};
  const auto ask = [&](size_t i) {
    RolloutAnswer& answer = answers[i];
    answer.rank = ranks[i];
    auto client = pool.rollout(ranks[i]);
    answer.status = client.status();
    if (client.ok()) {
      answer.client = *client;
      const MutexLock lock(calls.mutex);
      calls.clients.push_back(*client);
    }
    if (client.ok()) answer.status = call(**client, ranks[i]);
    if (client.ok() && absl::IsUnavailable(answer.status)) {
      pool.MarkLost({WorkerRole::kRollout, ranks[i]}, (*client)->incarnation());
    }
    const MutexLock lock(calls.mutex);
    --calls.running;
    calls.changed.NotifyAll();
  };
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) threads.emplace_back(ask, i);
  const MutexLock lock(calls.mutex);
  while (calls.running > 0) {
    NoteProgress();  // the calls have limits of their own
    (void)calls.changed.WaitUntil(calls.mutex, std::chrono::steady_clock::now() + kInterruptPoll);
    if (calls.running == 0 || !interrupted || !interrupted()) continue;
    for (const auto& client : calls.clients) client->CancelAll();
  }
  return answers;
}

absl::Status AllAnswered(const std::vector<RolloutAnswer>& answers) {
  constexpr int kNamed = 8;
  absl::Status worst;
  std::string message;
  int failed = 0;
  for (const RolloutAnswer& answer : answers) {
    if (answer.status.ok()) continue;
    if (worst.ok() || (IsPeerFailure(worst) && !IsPeerFailure(answer.status))) {
      worst = answer.status;
    }
    if (++failed > kNamed) continue;
    message += fmt::format("{}rollout {}: {}", failed > 1 ? "; " : "", answer.rank,
                           std::string(answer.status.message()));
  }
  if (failed > kNamed) message += fmt::format("; and {} more rollouts", failed - kNamed);
  return WithMessage(worst, message);
}

std::vector<int> AllRanks(const WorkerPool& pool) {
  std::vector<int> ranks(static_cast<size_t>(pool.pairs()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace tandem
