#include "controller/workers/rollout_calls.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "controller/workers/running_calls.h"
#include "controller/workers/trainer_calls.h"

namespace tandem {

PrefillTokenCounter::PrefillTokenCounter(WorkerPool& pool) : pool_(pool), before_(Read(pool)) {}

std::optional<int64_t> PrefillTokenCounter::Tokens() const {
  if (!before_) return std::nullopt;
  const auto now = Read(pool_);
  if (!now) return std::nullopt;
  int64_t tokens = 0;
  if (now->size() != before_->size()) return std::nullopt;
  for (size_t i = 0; i < now->size(); ++i) {
    const Count &from = (*before_)[i], &to = (*now)[i];
    if (from.rank != to.rank || from.incarnation != to.incarnation) return std::nullopt;
    tokens += to.tokens - from.tokens;
  }
  return tokens;
}

std::optional<std::vector<PrefillTokenCounter::Count>> PrefillTokenCounter::Read(WorkerPool& pool) {
  struct Reading {
    explicit Reading(size_t rollouts) : counts(rollouts), running(rollouts) {}
    std::vector<std::optional<Count>> counts;
    RunningCalls running;
  };
  const std::vector<int> ranks = AllRanks(pool);
  std::vector<std::shared_ptr<RolloutClient>> clients;
  for (const int rank : ranks) {
    auto rollout = pool.rollout(rank);
    if (!rollout.ok()) return std::nullopt;
    clients.push_back(*std::move(rollout));
  }
  const auto reading = std::make_shared<Reading>(clients.size());
  for (size_t i = 0; i < clients.size(); ++i) {
    const int64_t incarnation = clients[i]->incarnation();
    const int rank = ranks[i];
    clients[i]->PrefilledTokens(
        [reading, i, rank, incarnation](const absl::StatusOr<int64_t>& tokens) {
          if (tokens.ok()) reading->counts[i] = {rank, incarnation, *tokens};
          reading->running.End();
        });
  }
  reading->running.WaitForAll();
  std::vector<Count> counts;
  for (const std::optional<Count>& count : reading->counts) {
    if (!count) return std::nullopt;
    counts.push_back(*count);
  }
  return counts;
}

std::vector<RolloutAnswer> CallRollouts(WorkerPool& pool,
                                        const std::vector<int>& ranks,
                                        const RolloutCall& call,
                                        const std::function<bool()>& interrupted) {
  struct Asking {
    explicit Asking(size_t rollouts) : answers(rollouts), running(rollouts) {}
    std::vector<RolloutAnswer> answers;  // each status written by its own call
    RunningCalls running;
  };
  const auto asking = std::make_shared<Asking>(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    RolloutAnswer& answer = asking->answers[i];
    answer.rank = ranks[i];
    auto client = pool.rollout(ranks[i]);
    if (!client.ok()) {
      answer.status = client.status();
      asking->running.End();
      continue;
    }
    answer.client = *std::move(client);
    call(*answer.client, ranks[i], [asking, i, &pool](absl::Status status) {
      RolloutAnswer& own = asking->answers[i];
      if (absl::IsUnavailable(status)) {
        pool.MarkLost({WorkerRole::kRollout, own.rank}, own.client->incarnation());
      }
      own.status = std::move(status);
      asking->running.End();
    });
  }
  while (!asking->running.Wait()) {
    if (!interrupted || !interrupted()) continue;
    for (const RolloutAnswer& answer : asking->answers) {
      if (answer.client != nullptr) answer.client->CancelAll();
    }
  }
  return std::move(asking->answers);
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

std::vector<int> AllRanks(const WorkerPool& pool) { return pool.active_rollouts().Ranks(); }

}  // namespace tandem
