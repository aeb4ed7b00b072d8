// The newest weights that each rollout was sent, for who asks how a run is.
#pragma once

#include <map>
#include <vector>

#include "common/base/mutex.h"
#include "controller/store/run_store.h"

namespace tandem {

// Kept in memory, as a slow disk must not hold up a status. Thread-safe.
class LastSyncs {
 public:
  // In order of time.
  void Note(const std::vector<SyncRecord>& syncs);
  // By the rollout's rank.
  std::map<int, SyncRecord> Newest() const;

 private:
  mutable Mutex syncs_mutex_;
  std::map<int, SyncRecord> newest_ ABSL_GUARDED_BY(syncs_mutex_);
};

}  // namespace tandem
