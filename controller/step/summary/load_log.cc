#include "controller/step/summary/load_log.h"

#include <utility>

namespace tandem {

void LoadLog::Note(int rank, const GeneratorLoad& load, absl::Time now) {
  const MutexLock lock(log_mutex_);
  Kept& kept = kept_[rank];
  if (kept.seen++ % kept.every != 0) return;
  if (kept.records.size() == kMostOfRollout) {
    for (size_t i = 0; i < kMostOfRollout / 2; ++i) kept.records[i] = kept.records[2 * i];
    kept.records.resize(kMostOfRollout / 2);
    kept.every *= 2;
    // The one now would have been left out, unless it is the next in the wider grid.
    if ((kept.seen - 1) % kept.every != 0) return;
  }
  kept.records.push_back({.time_us = absl::ToUnixMicros(now), .rank = rank, .load = load});
}

std::vector<LoadRecord> LoadLog::Take() {
  const MutexLock lock(log_mutex_);
  std::vector<LoadRecord> all;
  for (auto& [rank, kept] : std::exchange(kept_, {})) {
    all.insert(all.end(), kept.records.begin(), kept.records.end());
  }
  return all;
}

}  // namespace tandem
