#include "controller/step/summary/last_syncs.h"

namespace tandem {

void LastSyncs::Note(const std::vector<SyncRecord>& syncs) {
  const MutexLock lock(syncs_mutex_);
  for (const SyncRecord& sync : syncs) newest_[sync.rank] = sync;
}

std::map<int, SyncRecord> LastSyncs::Newest() const {
  const MutexLock lock(syncs_mutex_);
  return newest_;
}

}  // namespace tandem
