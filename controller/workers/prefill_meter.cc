#include "controller/workers/prefill_meter.h"

namespace tandem {

PrefillMeter::PrefillMeter(WorkerPool& pool) : pool_(pool), before_(Read(pool)) {}

std::optional<int64_t> PrefillMeter::Tokens() const {
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

std::optional<std::vector<PrefillMeter::Count>> PrefillMeter::Read(WorkerPool& pool) {
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

}  // namespace tandem
